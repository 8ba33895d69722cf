"""A few hundred labels adapt the artefact: planted structure is found, and bad labels are rejected by line."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from classifier.adaptation import read_adaptation
from classifier.artefact import ArtefactError, read_artefact, write_artefact
from classifier.batch import classify_file
from classifier.load import SHIPPED, load_artefact
from classifier.metrics import tie_aware_apgr
from classifier.protocol import Conversation, ModelProfile
from classifier.training.adapt import PRIOR_SLOPE, Penalties, adapt, fit_adaptation, frozen_view
from classifier.training.corpus import CorpusError

TOPICS = ("the tax on imported cheese", "the melting point of tin", "a poem about rain", "sorting a list of names")


def write_labels(path: Path, size: int) -> np.ndarray:
    """In this domain the weak model fails at cheese, whatever the prompt's length."""
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


def test_labels_of_the_model_that_was_asked_alone_say_what_is_hard(tmp_path: Path) -> None:
    """Hard prompts went to the strong model, which solved them: that does not make them easy."""
    gaps, draw = write_labels(tmp_path / "all.jsonl", 400), np.random.default_rng(6)
    with (tmp_path / "labels.jsonl").open("w") as sink:
        for line in (tmp_path / "all.jsonl").read_text().splitlines():
            row = json.loads(line)
            asked = "big" if ("cheese" in row["prompt"]) == (draw.random() < 0.93) else "small"
            sink.write(json.dumps({**row, "scores": {asked: row["scores"][asked]}}) + "\n")
    adapt(tmp_path / "labels.jsonl", tmp_path / "artefact")
    rows = classified(tmp_path / "artefact", tmp_path / "all.jsonl", tmp_path / "out.jsonl")
    assert tie_aware_apgr(np.array([row["difficulty"] for row in rows]), gaps) > 0.7


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
        ('{"prompt": "a", "scores": {"m": 1.5}}', "scores are numbers between 0 and 1"),
        ('{"prompt": "a", "scores": {"m": "1"}}', 'a score of "1"; scores are numbers between 0 and 1'),
    ],
)
def test_bad_labels_are_refused_by_line(tmp_path: Path, line: str, message: str) -> None:
    good = json.dumps({"prompt": "a", "scores": {"m": 1.0}})
    (tmp_path / "labels.jsonl").write_text("\n".join([*[good] * 40, line]))
    with pytest.raises(CorpusError, match=f"labels.jsonl:41 .*{message}"):
        adapt(tmp_path / "labels.jsonl", tmp_path / "out")


def test_true_and_false_are_scores(adapted: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (adapted / "labels.jsonl").read_text().splitlines()][:60]
    weights: list[bytes] = []
    for grade in (float, bool):
        rows = [{**line, "scores": {name: grade(score) for name, score in line["scores"].items()}} for line in lines]
        (tmp_path / "labels.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        adapt(tmp_path / "labels.jsonl", tmp_path / grade.__name__)
        weights.append((tmp_path / grade.__name__ / "weights.bin").read_bytes())
    assert weights[0] == weights[1]


def test_two_names_that_are_taken_for_one_model_are_told(adapted: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (adapted / "labels.jsonl").read_text().splitlines()][:60]
    rows = [{**line, "scores": {"acme/tuned": 1, "meta/tuned": 0, "small": 1}} for line in lines]
    (tmp_path / "labels.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    told: list[str] = []
    adapt(tmp_path / "labels.jsonl", tmp_path / "out", progress=told.append)
    assert told == ["acme/tuned and meta/tuned are taken for one model, tuned: rename one if they are not"]


def test_too_few_labels_are_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.jsonl").write_text(json.dumps({"prompt": "a", "scores": {"m": 1.0}}))
    with pytest.raises(CorpusError, match=r"holds 0 prompts .* needs at least 30"):
        adapt(tmp_path / "labels.jsonl", tmp_path / "out")


def test_a_model_with_hardly_a_label_keeps_the_frozen_curve(adapted: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (adapted / "labels.jsonl").read_text().splitlines()][:100]
    for line in lines[:9]:
        line["scores"]["guest"] = 1.0
    lines.append({"prompt": "Only the guest answered this.", "scores": {"guest": 0.0, "other-guest": 1.0}})
    (tmp_path / "labels.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    told: list[str] = []
    adapt(tmp_path / "labels.jsonl", tmp_path / "with", progress=told.append)
    assert told == ["other-guest keeps the artefact's curve: it has 1 of the 10 scores it needs"]
    found = load_artefact(tmp_path / "with").bind([ModelProfile("guest"), ModelProfile("other-guest")])
    assert found.adapted_to == ("big", "guest", "small")
    frozen = load_artefact().bind([ModelProfile("other-guest")])
    for prompt in ("Tell me about the melting point of tin.", "Prove it."):
        quality = found.classify(Conversation(prompt)).quality
        assert quality["other-guest"] == frozen.classify(Conversation(prompt)).quality["other-guest"]


def test_few_labels_of_a_model_leave_it_less_certain(adapted: Path) -> None:
    adaptation = read_adaptation(read_artefact(adapted / "artefact"))
    assert adaptation is not None
    view = frozen_view(read_artefact(SHIPPED), [f"Tell me about {topic}." for topic in TOPICS] * 10)
    outcomes = np.full((40, 2), 0.5)
    outcomes[10:, 1] = np.nan
    noises = fit_adaptation(view, outcomes, ("big", "small")).noises
    assert noises[2] == pytest.approx(2.0 * noises[1])
    assert noises[0] == noises[1] > adaptation.noises[1]


@pytest.mark.parametrize("text", ["", " \n", "?!", "Say it again."])
def test_labels_of_one_text_leave_other_prompts_within_reason(adapted: Path, tmp_path: Path, text: str) -> None:
    """Blank prompts teach nothing; a single repeated text teaches its level but no slope."""
    rows = [{"prompt": text, "scores": {"big": number % 5 / 4, "small": number % 3 / 2}} for number in range(60)]
    if not text.strip(" \n?!"):
        rows += [json.loads(line) for line in (adapted / "labels.jsonl").read_text().splitlines()][:100]
    (tmp_path / "labels.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    adapt(tmp_path / "labels.jsonl", tmp_path / "artefact")
    found = load_artefact(tmp_path / "artefact").classify(Conversation("Prove that 7 divides the product evenly."))
    assert 0.1 < found.difficulty < 0.9


def test_blank_prompts_are_no_labels(tmp_path: Path) -> None:
    (tmp_path / "labels.jsonl").write_text(f"{json.dumps({'prompt': ' ', 'scores': {'m': 1.0}})}\n" * 40)
    with pytest.raises(CorpusError, match="holds 0 prompts that can be read"):
        adapt(tmp_path / "labels.jsonl", tmp_path / "out")


def test_lines_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    good = json.dumps({"prompt": "a", "scores": {"m": 1.0}})
    (tmp_path / "labels.jsonl").write_text("\n\n" + '{"prompt": "a", "scores": {"m": 7}}\n' + f"{good}\n" * 40)
    with pytest.raises(CorpusError, match=r"labels\.jsonl:3 has a score of 7"):
        adapt(tmp_path / "labels.jsonl", tmp_path / "out")


def test_near_prompts_speak_for_each_other_as_the_fit_assumed(adapted: Path) -> None:
    """The data path computes for a labelled prompt what the fit's ridge gives it."""
    adaptation = read_adaptation(read_artefact(adapted / "artefact"))
    assert adaptation is not None
    neighbours = adaptation.neighbours
    rows = neighbours.landmarks / neighbours.scales
    apart = ((neighbours.landmarks[:, None] - neighbours.landmarks[None, :20]) ** 2).sum(axis=2)
    expected = np.exp(-apart).T @ neighbours.weights
    assert np.array([neighbours.predict(row) for row in rows[:20]]) == pytest.approx(expected, abs=1e-4)
    assert float(np.abs(expected).max()) > 0.01


def test_the_fit_is_kernel_ridge_on_the_labels_of_each_model(tmp_path: Path) -> None:
    write_labels(tmp_path / "labels.jsonl", 60)
    prompts = [json.loads(line)["prompt"] for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    view = frozen_view(read_artefact(SHIPPED), prompts)
    outcomes = np.random.default_rng(3).random((60, 2))
    outcomes[:20, 1] = np.nan
    fitted = fit_adaptation(view, outcomes, ("big", "small"))
    rows = np.array([fitted.design(*seen) for seen in zip(view.scores.tolist(), view.vectors, strict=True)], np.float64)
    places, penalties = rows[:, 1:-1] * fitted.neighbours.scales, Penalties()
    near = np.exp(-((places[:, None] - places[None]) ** 2).sum(axis=2))
    kernel = (rows[:, :-1] / penalties.diagonal(rows.shape[1] - 1)) @ rows[:, :-1].T + near / penalties.near
    predicted = np.array([fitted.predict(*seen) for seen in zip(view.scores.tolist(), view.vectors, strict=True)])
    for number, known in ((1, np.arange(60)), (2, np.arange(20, 60))):
        target = outcomes[known, number - 1]
        slope = -PRIOR_SLOPE * (1.0 - target.mean()) * target.std() / rows[:, 0].std()
        system = np.block(
            [[kernel[np.ix_(known, known)] + np.eye(len(known)), np.ones((len(known), 1))], [np.ones(len(known)), 0.0]]
        )
        solved = np.linalg.solve(system, np.r_[target - slope * rows[known, 0], 0.0])
        expected = kernel[:, known] @ solved[:-1] + solved[-1] + slope * rows[:, 0]
        assert predicted[:, number] == pytest.approx(expected, abs=1e-4)


def test_more_labels_than_landmarks_still_find_the_structure(tmp_path: Path) -> None:
    gaps = write_labels(tmp_path / "labels.jsonl", 400)
    prompts = [json.loads(line)["prompt"] for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    view = frozen_view(read_artefact(SHIPPED), prompts)
    fitted = fit_adaptation(view, np.c_[np.ones(400), 1.0 - gaps], ("big", "small"), max_landmarks=50)
    assert len(fitted.neighbours.landmarks) == 50
    rows = [fitted.predict(score, vector) for score, vector in zip(view.scores.tolist(), view.vectors, strict=True)]
    assert tie_aware_apgr(np.array([big - small for _, big, small in rows]), gaps) > 0.75


@pytest.mark.parametrize(
    "scores",
    [
        {"big": 1.0, "small": 1.0},
        {"big": 0.0},
        {"big": 0.5, "small": None, "third": float("nan")},
    ],
    ids=["all equal", "one model", "unknown scores"],
)
def test_labels_that_tell_nothing_leave_the_order_to_the_frozen_score(
    tmp_path: Path, scores: dict[str, float | None]
) -> None:
    prompts = [f"Prove that {number} divides {'the product ' * number}evenly." for number in range(40)]
    rows = [json.dumps({"id": 0, "prompt": prompt, "scores": scores}) for prompt in prompts]
    (tmp_path / "labels.jsonl").write_text("\n".join([*rows, '{"prompt": "nobody answered", "scores": {}}']))
    adapt(tmp_path / "labels.jsonl", tmp_path / "artefact")
    loaded = load_artefact(tmp_path / "artefact")
    assert loaded.adapted_to == tuple(
        sorted(name for name, score in scores.items() if score == score and score is not None)
    )
    found = [loaded.classify(Conversation(prompt)).difficulty for prompt in prompts]
    assert np.ptp(found) < 0.01
    assert np.mean(found) == pytest.approx(
        1.0 - np.mean([s for s in scores.values() if s == s and s is not None]), abs=0.1
    )


def test_an_artefact_adapted_by_an_older_version_says_what_to_do(adapted: Path, tmp_path: Path) -> None:
    artefact = read_artefact(adapted / "artefact")
    older = {name: tensor for name, tensor in artefact.tensors.items() if "landmark" not in name}
    write_artefact(tmp_path, older, artefact.pieces, {"adaptation": artefact.facts["adaptation"]})
    with pytest.raises(ArtefactError, match="run `breakeven train --adapt` again"):
        read_adaptation(read_artefact(tmp_path))


def test_adapted_shares_stay_within_bounds_and_never_tie(adapted: Path) -> None:
    adaptation = read_adaptation(read_artefact(adapted / "artefact"))
    assert adaptation is not None
    silent = replace(adaptation.neighbours, weights=np.zeros_like(adaptation.neighbours.weights))
    vector, row = np.zeros(len(adaptation.centre) - 1), adaptation.weights.copy()
    row[:] = 0.0
    levels = (-0.4, -0.1, 0.02, 0.5, 0.97, 1.02, 1.3)
    found: list[float] = []
    for level in levels:
        row[-1] = level
        found.append(replace(adaptation, weights=row.copy(), neighbours=silent).apply(0.0, vector)[0])
    assert found == sorted(set(found))
    assert 0.0 < found[0] < 0.01
    assert found[3] == pytest.approx(0.5)
    assert 0.99 < found[-1] < 1.0
