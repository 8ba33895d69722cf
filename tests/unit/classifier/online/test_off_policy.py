"""Doubly robust estimates find the value of a policy that was never run, from the exploration of another."""

import random

import pytest

from classifier.online.off_policy import Logged, doubly_robust

TRUE_QUALITY = {"cheap": 0.55, "dear": 0.8}
EXPLORED = 0.2


def make_log(size: int, *, predicted: dict[str, float]) -> list[Logged]:
    draw = random.Random(1)
    log: list[Logged] = []
    for _ in range(size):
        model, propensity = ("dear", EXPLORED) if draw.random() < EXPLORED else ("cheap", 1.0 - EXPLORED)
        log.append(Logged(model, propensity, float(draw.random() < TRUE_QUALITY[model]), predicted))
    return log


@pytest.mark.parametrize("predicted", [{"cheap": 0.55, "dear": 0.8}, {"cheap": 0.9, "dear": 0.1}])
def test_the_value_of_another_policy_is_found_even_with_wrong_predictions(predicted: dict[str, float]) -> None:
    estimate = doubly_robust(make_log(8000, predicted=predicted), lambda _: {"dear": 1.0})
    assert estimate.low < 0.8 < estimate.high
    assert estimate.mean == pytest.approx(0.8, abs=0.04)
    assert 1200 < estimate.effective < 2000


@pytest.mark.parametrize("propensity", [0.02, 0.005])
def test_what_is_explored_seldom_is_not_taken_for_what_was_predicted(propensity: float) -> None:
    """Predicted to be far better, but actually equal: over many logs the mean gain is 0, and intervals contain 0."""
    draw, gains, held = random.Random(3), list[float](), 0
    for _ in range(60):
        log: list[Logged] = []
        for _ in range(2000):
            model, chance = ("dear", propensity) if draw.random() < propensity else ("cheap", 1.0 - propensity)
            log.append(Logged(model, chance, float(draw.random() < 0.6), {"cheap": 0.6, "dear": 0.95}))
        found = doubly_robust(log, lambda _: {"dear": 1.0, "cheap": -1.0})
        gains.append(found.mean)
        held += found.low <= 0.0 <= found.high
    assert sum(gains) / len(gains) == pytest.approx(0.0, abs=0.06)
    assert held >= 50


def test_a_few_answers_that_are_all_good_do_not_look_certain() -> None:
    """If nine of ten are good, a gain of .1, eleven are all good in 31 % of logs."""
    predicted, share = {"cheap": 0.8, "dear": 0.9}, 11 / 450
    tried = [Logged("dear", share, 1.0, predicted)] * 11
    others = [Logged("cheap", 1 - share, float(number % 5 != 0), predicted) for number in range(439)]
    found = doubly_robust([*tried, *others], lambda _: {"dear": 1.0, "cheap": -1.0})
    assert found.mean == pytest.approx(0.2, abs=0.01)
    assert found.low < 0.1 < found.mean < found.high


def test_the_logging_policy_is_worth_what_was_earned() -> None:
    log = make_log(5000, predicted={"cheap": 0.5, "dear": 0.5})
    estimate = doubly_robust(log, lambda _: {"cheap": 0.8, "dear": 0.2})
    assert estimate.mean == pytest.approx(sum(entry.reward for entry in log) / len(log), abs=1e-9)


def test_promotion_needs_a_lower_bound_above_the_incumbent() -> None:
    log = make_log(8000, predicted=TRUE_QUALITY)
    cheap, dear = doubly_robust(log, lambda _: {"cheap": 1.0}), doubly_robust(log, lambda _: {"dear": 1.0})
    assert dear.low > cheap.mean
    assert cheap.low < dear.mean


def test_unusable_logs_are_refused() -> None:
    with pytest.raises(ValueError, match="two logged"):
        doubly_robust([], lambda _: {})
    bad = Logged("a", 0.0, 1.0, {"a": 0.5})
    with pytest.raises(ValueError, match=r"propensity of 0\.0"):
        doubly_robust([bad, bad], lambda _: {"a": 1.0})
