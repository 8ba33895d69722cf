"""Every metric against values computed by hand, and RouteLLM's thresholds against pandas."""

import math

import numpy as np
import pandas as pd
import pytest

from classifier import metrics

SCORES = np.arange(1.0, 11.0)  # ten prompts, the hardest last


def test_route_curve_has_the_eleven_points_of_ten_bins() -> None:
    curve = metrics.route_curve(SCORES, np.ones(10), np.zeros(10))
    assert curve.strong_share == pytest.approx(np.linspace(0, 1, 11))
    assert curve.quality == pytest.approx(np.linspace(0, 1, 11))


def test_apgr_of_a_perfect_order() -> None:
    # The strong model wins only on the five hardest: quality rises to 1 at half the calls, then stays.
    strong, weak = np.ones(10), np.r_[np.ones(5), np.zeros(5)]
    # area = trapezoid from 0.5 to 1 over half the axis, then 1: 0.375 + 0.5 = 0.875; (0.875 - 0.5) / 0.5
    assert metrics.apgr(SCORES, strong, weak) == pytest.approx(0.75)
    assert metrics.apgr(-SCORES, strong, weak) == pytest.approx(0.25)


def test_cpt_reads_the_curve_linearly() -> None:
    strong, weak = np.ones(10), np.r_[np.ones(5), np.zeros(5)]
    assert metrics.cpt(SCORES, strong, weak, 0.5) == pytest.approx(0.25)
    assert metrics.cpt(SCORES, strong, weak, 0.8) == pytest.approx(0.40)


def test_thresholds_are_those_of_pandas_qcut() -> None:
    scores = np.random.default_rng(3).normal(size=137)
    edges: list[float] = pd.qcut(pd.Series(scores), 10, retbins=True)[1].tolist()
    shares = sorted(
        float((scores > edge).mean() if number == len(edges) - 1 else (scores >= edge).mean())
        for number, edge in enumerate(edges)
    )
    assert metrics.route_curve(scores, np.ones(137), np.zeros(137)).strong_share == pytest.approx(shares)


def test_tie_aware_apgr_of_equal_scores_is_random() -> None:
    gap = np.array([1.0, 0.0, 0.0, -1.0, 1.0])
    assert metrics.tie_aware_apgr(np.zeros(5), gap) == pytest.approx(0.5)


def test_tie_aware_apgr_by_hand() -> None:
    # Ranks 1..4 from the highest score; the gap is at ranks 1 and 2: 1 - (0.5 + 1.5) / (2 * 4)
    assert metrics.tie_aware_apgr(np.array([4.0, 3.0, 2.0, 1.0]), np.array([1.0, 1.0, 0.0, 0.0])) == pytest.approx(0.75)


def test_no_gap_has_no_apgr() -> None:
    assert math.isnan(metrics.tie_aware_apgr(SCORES, np.zeros(10)))
    assert math.isnan(metrics.apgr(SCORES, np.ones(10), np.ones(10)))


def test_bootstrap_interval_holds_the_value() -> None:
    gap = np.random.default_rng(1).normal(0.3, 1.0, 400)
    scores = gap + np.random.default_rng(2).normal(size=400)
    low, high = metrics.bootstrap_interval(scores, gap)
    assert low < metrics.tie_aware_apgr(scores, gap) < high
    assert (low, high) == metrics.bootstrap_interval(scores, gap)


def test_brier_and_calibration_error_by_hand() -> None:
    assert metrics.brier(np.array([0.8, 0.2]), np.array([1.0, 0.0])) == pytest.approx(0.04)
    predicted = np.repeat([0.2, 0.8], 10)
    outcome = np.r_[np.ones(5), np.zeros(5), np.ones(10)]
    assert metrics.calibration_error(predicted, outcome, bins=2) == pytest.approx(0.5 * 0.3 + 0.5 * 0.2)
