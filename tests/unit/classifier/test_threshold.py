"""The chosen cut keeps its promise with as few strong calls as the order allows."""

import numpy as np
import pytest

from classifier.threshold import choose_cut, cost_quality_curve

SCORES = np.linspace(0, 1, 400)
STRONG = np.ones(400)
WEAK = np.r_[np.ones(300), np.zeros(100)]  # fails on the hardest quarter


def test_a_good_order_needs_few_strong_calls() -> None:
    good = choose_cut(SCORES, STRONG, WEAK, target=0.95)
    bad = choose_cut(-SCORES, STRONG, WEAK, target=0.95)
    assert good.strong_share < 0.26
    assert bad.strong_share > 0.9
    for cut in (good, bad):
        assert cut.kept_quality >= cut.kept_quality_low >= 0.95


def test_the_threshold_reproduces_the_share() -> None:
    cut = choose_cut(SCORES, STRONG, WEAK, target=0.9)
    assert (cut.threshold <= SCORES).mean() == pytest.approx(cut.strong_share)


def test_nothing_goes_to_strong_when_weak_is_as_good_and_equal_scores_go_together() -> None:
    none = choose_cut(SCORES, STRONG, STRONG, target=1.0)
    assert none.strong_share == 0.0
    assert not (none.threshold <= SCORES).any()
    assert choose_cut(np.zeros(400), STRONG, WEAK, target=0.9).strong_share == 1.0


@pytest.mark.parametrize(("target", "size"), [(0.0, 400), (1.1, 400), (0.9, 10)])
def test_impossible_requests_are_refused(target: float, size: int) -> None:
    with pytest.raises(ValueError, match=r"target|too few"):
        choose_cut(SCORES[:size], STRONG[:size], WEAK[:size], target=target)


def test_a_strong_model_that_never_succeeds_has_no_quality_to_keep() -> None:
    """It was told that 100000000000 % are kept, or that 0 % are and the target is met."""
    with pytest.raises(ValueError, match="all 0"):
        choose_cut(SCORES, np.zeros(400), WEAK, target=0.9)


def test_the_curve_runs_from_weak_to_strong() -> None:
    curve = cost_quality_curve(SCORES, STRONG, WEAK)
    assert curve[0] == (0.0, 0.75)
    assert curve[-1] == (1.0, 1.0)
    assert [quality for _, quality in curve] == sorted(quality for _, quality in curve)
