"""The worked example of docs/economics.md, built once for the tests that assert its rows."""

import numpy as np
from numpy.typing import ArrayLike

from gateway.economics.gpu_cost import Engine, RequestShape
from gateway.economics.load_duration import Load
from gateway.economics.throughput_curve import SweepPoint, fit_throughput_curve

STEP_BASE, STEP_PER_SEQUENCE = 0.020, 0.0005
USD_PER_HOUR = 2.0
DAYS = 30
HOSTED_USD = (500 * 0.15 + 300 * 0.60) / 1e6
LARGE_USD = (500 * 2.50 + 300 * 10.0) / 1e6
SHAPE = RequestShape(500, 300, cached_share=0.4)
REQUESTS_PER_DAY = 576_000


def measure(concurrency: int) -> SweepPoint:
    """A point exactly on the example's curve."""
    return SweepPoint(concurrency, concurrency / (STEP_BASE + STEP_PER_SEQUENCE * concurrency))


CURVE = fit_throughput_curve([measure(concurrency) for concurrency in (1, 8, 32, 64)])
ENGINE = Engine(CURVE, 64, 8000.0)
GPU_SECONDS = ENGINE.gpu_seconds(SHAPE)


def build_load(hours: ArrayLike, requests_per_second: ArrayLike, gpu_seconds: ArrayLike, value_usd: ArrayLike) -> Load:
    """Single numbers are repeated for every bin."""
    columns = [np.asarray(one, dtype=np.float64) for one in (hours, requests_per_second, gpu_seconds, value_usd)]
    return Load(*(np.atleast_1d(column).copy() for column in np.broadcast_arrays(*columns)))


def make_load(value_usd: float = HOSTED_USD) -> Load:
    """Eight hours each at 12, 6 and 2 requests a second, hour by hour."""
    day = [12.0] * 8 + [6.0] * 8 + [2.0] * 8
    return build_load(1.0, day * DAYS, GPU_SECONDS, value_usd)
