"""Bootstrap intervals from whole clusters (days, teams), not single rows: the hours of a day are correlated."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from gateway.economics.load_duration import FloatArray

TAIL = 0.05


@dataclass(frozen=True, slots=True)
class Spread:
    """The median and the ends of the central 90 %."""

    low: float
    middle: float
    high: float


def resample_clusters(
    values: FloatArray, cluster_of_row: NDArray[np.int64], generator: np.random.Generator, *, resamples: int = 2000
) -> FloatArray:
    """Sums of `values` over clusters drawn with replacement, one row per resample and one column per column of values.

    Columns are drawn together, so a ratio of two columns of the result is the bootstrap of that ratio.
    """
    clusters = int(cluster_of_row.max()) + 1
    sums = np.zeros((clusters, values.shape[1]))
    np.add.at(sums, cluster_of_row, values)
    drawn = generator.multinomial(clusters, np.full(clusters, 1.0 / clusters), size=resamples)
    return drawn.astype(np.float64) @ sums


def spread(draws: FloatArray, clusters: int) -> Spread:
    """The interval of resamples of this many clusters. Resamples of few clusters vary too little, so the percentiles
    are widened to Student's t (Hesterberg's expanded percentiles): for a week, coverage is 89 % instead of 82 %."""
    tail = _tail(clusters)
    low, middle, high = (float(value) for value in np.quantile(draws, (tail, 0.5, 1 - tail)))
    return Spread(low, middle, high)


def _tail(clusters: int) -> float:
    """The share of resamples below the interval: 5 % with many clusters, less with few.

    Student's quantile comes from its expansion (Abramowitz and Stegun, 26.7.5), because the core does not depend on
    scipy: 2.347 instead of 2.353 with four clusters, 1.9428 instead of 1.9432 with seven; with two, 12 % too small.
    """
    free = clusters - 1
    if free < 1:
        return TAIL
    z = NormalDist().inv_cdf(1 - TAIL)
    student = z  # t's quantile by its expansion around the normal one
    student += (z**3 + z) / (4 * free)
    student += (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    student += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * free**3)
    return NormalDist().cdf(-student * math.sqrt(clusters / free))
