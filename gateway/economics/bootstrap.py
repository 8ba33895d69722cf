"""Intervals by resampling whole clusters (days, teams), never single rows: hours of one day share that day's luck."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.economics.load_duration import FloatArray


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle and the ends of the middle 90 %."""

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


def spread(draws: FloatArray) -> Spread:
    low, middle, high = (float(value) for value in np.quantile(draws, (0.05, 0.5, 0.95)))
    return Spread(low, middle, high)
