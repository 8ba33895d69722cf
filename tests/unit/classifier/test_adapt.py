"""A few hundred labels bend the artefact: planted structure is found, bad labels are refused by line."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from classifier.adaptation import read_adaptation
from classifier.artefact import read_artefact
from classifier.batch import classify_file
from classifier.encoder import Pieces
from classifier.load import load_artefact
from classifier.metrics import tie_aware_apgr
from classifier.protocol import ModelProfile
from classifier.training.adapt import adapt
from classifier.training.corpus import CorpusError

TOPICS = ("the tax on imported cheese", "the melting point of tin", "a poem about rain", "sorting a list of names")


def write_labels(path: Path, size: int) -> np.ndarray:
    """In this domain cheese is what the weak model cannot do, however long the prompt."""
    draw = np.random.default_rng(5)
    gaps: list[float] = []
    with path.open("w") as sink:
        for number in range(size):
            topic = int(draw.integers(len(TOPICS)))
            filler = " please explain" * int(draw.integers(0, 9))
            weak = float(draw.random() < (0.2 if topic == 0 else 0.9))
            row = {
                "id": number,
                "prompt": f"Tell me about {TOPICS[topic]}{filler}.",
                "scores": {"big": 1.0, "small": weak},
            }
            gaps.append(1.0 - weak)
            sink.write(json.dumps(row) + "\n")
    return np.array(gaps)


def classified(artefact: Path, prompts: Path, out: Path) -> list[dict[str, float]]:
    bound = load_artefact(artefact).bind([ModelProfile("big"), ModelProfile("small")])
    classify_file(prompts, out, bound, pair=("big", "small"))
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapted")
    write_labels(folder / "labels.jsonl", 400)
    adapt(folder / "labels.jsonl", folder / "artefact")
    return folder


def test_planted_structure_is_found(adapted: Path) -> None:
    gaps = write_labels(adapted / "prompts.jsonl", 400)
    rows = classified(adapted / "artefact", adapted / "prompts.jsonl", adapted / "out.jsonl")
    assert tie_aware_apgr(np.array([row["route_score"] for row in rows]), gaps) > 0.75
    assert tie_aware_apgr(np.array([row["difficulty"] for row in rows]), gaps) > 0.75
    assert load_artefact(adapted / "artefact").adapted_to == ("big", "small")


def test_the_same_labels_give_the_same_bytes(adapted: Path, tmp_path: Path) -> None:
    adapt(adapted / "labels.jsonl", tmp_path / "again")
    for name in ("manifest.json", "weights.bin"):
        assert (tmp_path / "again" / name).read_bytes() == (adapted / "artefact" / name).read_bytes()


def test_without_labels_for_both_models_the_route_score_is_the_difficulty(adapted: Path, tmp_path: Path) -> None:
    bound = load_artefact().bind([ModelProfile("big"), ModelProfile("small")])
    assert classify_file(adapted / "labels.jsonl", tmp_path / "out", bound, pair=("big", "small")) == 400
    first = json.loads((tmp_path / "out").read_text().splitlines()[0])
    assert first["route_score"] == first["difficulty"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": 1, "scores": {}}', "needs a `prompt` string"),
        ("{", "is not JSON"),
        ('{"prompt": "a", "scores": {"m": 1.5}}', "scores are between 0 and 1"),
        ('{"prompt": "a", "scores": {"m": "good"}}', "scores are between 0 and 1"),
    ],
)
def test_bad_labels_are_refused_by_line(tmp_path: Path, line: str, message: str) -> None:
    good = json.dumps({"prompt": "a", "scores": {"m": 1.0}})
    (tmp_path / "labels.jsonl").write_text("\n".join([*[good] * 40, line]))
    with pytest.raises(CorpusError, match=f"labels.jsonl:41 .*{message}"):
        adapt(tmp_path / "labels.jsonl", tmp_path / "out")


def test_too_few_labels_are_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.jsonl").write_text(json.dumps({"prompt": "a", "scores": {"m": 1.0}}))
    with pytest.raises(CorpusError, match="holds 1 graded prompts"):
        adapt(tmp_path / "labels.jsonl", tmp_path / "out")


def test_lines_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    good = json.dumps({"prompt": "a", "scores": {"m": 1.0}})
    (tmp_path / "labels.jsonl").write_text("\n\n" + '{"prompt": "a", "scores": {"m": 7}}\n' + f"{good}\n" * 40)
    with pytest.raises(CorpusError, match=r"labels\.jsonl:3 has a score of 7"):
        adapt(tmp_path / "labels.jsonl", tmp_path / "out")


def test_adapted_shares_stay_within_bounds_and_never_tie(adapted: Path) -> None:
    adaptation = read_adaptation(read_artefact(adapted / "artefact"))
    assert adaptation is not None
    vector, nothing = np.zeros(len(adaptation.centre) - 1), Pieces(np.zeros(0, np.int64), np.zeros(0, np.float32))
    row = adaptation.weights.copy()
    row[:] = 0.0
    levels = (-0.4, -0.1, 0.02, 0.5, 0.97, 1.02, 1.3)
    found: list[float] = []
    for level in levels:
        row[-1] = level
        found.append(replace(adaptation, weights=row.copy()).apply(0.0, vector, nothing)[0])
    assert found == sorted(set(found))
    assert 0.0 < found[0] < 0.01
    assert found[3] == pytest.approx(0.5)
    assert 0.99 < found[-1] < 1.0
