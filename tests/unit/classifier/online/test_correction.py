"""A correction shifts predictions, can be undone exactly, and does not depend on the order of outcomes."""

import random

import pytest

from classifier.load import load_artefact
from classifier.online.correction import NONE, CorrectedClassifier, Correction, Outcome, learn
from classifier.protocol import Conversation, ModelProfile


@pytest.mark.parametrize("quality", [0.05, 0.5, 0.93])
@pytest.mark.parametrize("difficulty", [0.0, 0.4, 1.0])
def test_what_a_correction_did_can_be_undone(quality: float, difficulty: float) -> None:
    correction = Correction({"a": (0.7, -1.2)})
    corrected = correction.apply("a", quality, difficulty)
    assert correction.undo("a", corrected, difficulty) == pytest.approx(quality, abs=1e-9)
    assert correction.apply("b", quality, difficulty) == pytest.approx(quality)


def test_shifts_are_bounded() -> None:
    assert Correction({"a": (50.0, 0.0)}).apply("a", 0.5, 0.5) < 0.96


def test_a_model_that_is_better_than_predicted_is_learnt_and_others_stay() -> None:
    draw = random.Random(0)
    outcomes = [Outcome("a", 0.5, draw.random(), float(draw.random() < 0.8)) for _ in range(400)]
    found = learn(outcomes)
    assert found.apply("a", 0.5, 0.5) == pytest.approx(0.8, abs=0.05)
    assert set(found.shifts) == {"a"}
    assert learn(sorted(outcomes, key=lambda one: one.difficulty)).id == found.id
    assert learn([]).shifts == NONE.shifts


@pytest.mark.parametrize(("predicted", "true"), [(0.8, 0.6), (0.9, 0.8), (0.95, 0.7), (0.5, 0.9), (0.2, 0.05)])
def test_many_outcomes_teach_what_is_true(predicted: float, true: float) -> None:
    right = [Outcome("a", predicted, number % 11 / 10, 1.0) for number in range(round(11_000 * true))]
    wrong = [Outcome("a", predicted, number % 11 / 10, 0.0) for number in range(round(11_000 * (1 - true)))]
    assert learn([*right, *wrong]).apply("a", predicted, 0.5) == pytest.approx(true, abs=0.005)


def test_how_the_shift_grows_with_difficulty_is_learnt() -> None:
    truth, draw = Correction({"a": (-1.0, 2.0)}), random.Random(1)
    outcomes: list[Outcome] = []
    for _ in range(20_000):
        difficulty, quality = draw.random(), draw.uniform(0.1, 0.95)
        score = float(draw.random() < truth.apply("a", quality, difficulty))
        outcomes.append(Outcome("a", quality, difficulty, score))
    assert learn(outcomes).shifts["a"] == pytest.approx((-1.0, 2.0), abs=0.15)


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_what_was_predicted_for_certain_and_never_came_is_learnt_too(score: float) -> None:
    found = learn([Outcome("a", 1.0 - score, 0.5, score)] * 10_000)
    assert abs(found.apply("a", 0.5, 0.5) - score) < 0.05


def test_few_outcomes_move_little() -> None:
    assert learn([Outcome("a", 0.5, 0.5, 1.0)]).apply("a", 0.5, 0.5) < 0.7


def test_the_corrected_classifier_says_which_correction_it_has() -> None:
    frozen = load_artefact()
    correction = Correction({"gpt-4o": (-2.0, 0.0)})
    profiles = [ModelProfile("gpt-4o"), ModelProfile("gpt-4o-mini")]
    plain, corrected = frozen.bind(profiles), CorrectedClassifier(frozen, correction).bind(profiles)
    prompt = Conversation("What is the capital of France?")
    before, after = plain.classify(prompt), corrected.classify(prompt)
    assert after.quality["gpt-4o"].mean < before.quality["gpt-4o"].mean - 0.2
    assert after.quality["gpt-4o-mini"].mean == pytest.approx(before.quality["gpt-4o-mini"].mean)
    assert after.difficulty == before.difficulty
    assert corrected.version == f"{plain.version}+{correction.id}"
