from statistics import NormalDist

import numpy as np
import pytest

from gateway.economics.bootstrap import resample_clusters, spread


def interval_width(
    values: np.ndarray[tuple[int], np.dtype[np.float64]], clusters: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> float:
    draws = resample_clusters(values[:, None], clusters, np.random.default_rng(3), resamples=1500)
    ends = spread(draws[:, 0], int(clusters.max()) + 1)
    return ends.high - ends.low


def test_row_level_intervals_mislead_by_the_factor_that_theory_says() -> None:
    """30 days of 24 hours; a day effect of sd 0.3 and hours of sd 0.5 give a factor of 2.66, by the design effect."""
    generator = np.random.default_rng(11)
    ratios: list[float] = []
    for _ in range(12):
        day_effect = np.repeat(generator.normal(0, 0.3, 30), 24)
        values = 5.0 + day_effect + generator.normal(0, 0.5, 720)
        by_day = interval_width(values, np.repeat(np.arange(30), 24))
        by_row = interval_width(values, np.arange(720))
        ratios.append(by_day / by_row)
    theory = ((0.3**2 + 0.5**2 / 24) / ((0.3**2 + 0.5**2) / 24)) ** 0.5
    assert round(theory, 1) == 2.7
    assert float(np.mean(ratios)) == pytest.approx(theory, rel=0.1)


@pytest.mark.parametrize("days", [5, 7, 14, 30])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(days: int) -> None:
    generator = np.random.default_rng(12)
    hours = np.repeat(np.arange(days), 24)
    covered = 0
    for _ in range(600):
        values = np.repeat(generator.normal(0, 0.3, days), 24) + generator.normal(0, 0.5, 24 * days)
        draws = resample_clusters(values[:, None], hours, generator, resamples=400)
        ends = spread(draws[:, 0], days)
        covered += ends.low <= 0 <= ends.high
    assert covered / 600 == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize(("clusters", "t"), [(5, 2.1318), (7, 1.9432), (14, 1.7709), (30, 1.6991), (1000, 1.6464)])
def test_the_ends_are_those_of_students_t(clusters: int, t: float) -> None:
    """Quantiles from a table, compared with the share of a standard normal sample that lies outside."""
    sample = np.array([NormalDist().inv_cdf((place + 0.5) / 200_000) for place in range(200_000)])
    expected = t * (clusters / (clusters - 1)) ** 0.5
    found = spread(sample, clusters)
    assert (found.low, found.high) == pytest.approx((-expected, expected), rel=2e-3)


def test_columns_are_drawn_together() -> None:
    values = np.array([[1.0, 2.0], [3.0, 6.0], [5.0, 10.0]])
    draws = resample_clusters(values, np.array([0, 1, 1]), np.random.default_rng(1), resamples=50)
    assert draws[:, 1] == pytest.approx(2 * draws[:, 0])


def test_one_cluster_has_no_spread() -> None:
    ends = spread(resample_clusters(np.ones((5, 1)), np.zeros(5, dtype=np.int64), np.random.default_rng(1))[:, 0], 1)
    assert (ends.low, ends.middle, ends.high) == (5.0, 5.0, 5.0)
