"""Simulates every arrival of a load, one at a time, through a limited number of slots, and adds up the bill.

It shares no formula with the analytic model, so that the two can disagree. Randomness is passed in.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gateway.economics.load_duration import FloatArray, Load


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedBill:
    """Requests by bin, and what the whole period cost: rent plus the hosted overflow."""

    arrivals: FloatArray
    hosted: FloatArray
    bill_usd: float
    all_hosted_usd: float

    @property
    def saving_usd(self) -> float:
        return self.all_hosted_usd - self.bill_usd


def simulate_overflow(
    load: Load,
    usd_per_replica_hour: float,
    slots: int,
    replicas: int,
    *,
    residence_seconds: Callable[[int], float],
    generator: np.random.Generator,
) -> SimulatedBill:
    """Poisson arrivals; a request that finds all slots taken goes to the hosted model at once.

    `residence_seconds(n)` is how long a mean request takes while n are running on one replica: a constant for the
    textbook model, or the engine's own curve if it is faster with fewer requests. All running requests progress at the
    same rate, so one virtual clock, which runs at 1/residence, tells which finishes next. Lengths are exponential.
    """
    now, virtual, bins = 0.0, 0.0, len(load.hours)
    finishing: list[float] = []
    pace = [1.0 / residence_seconds(max(1, -(-running // replicas))) for running in range(slots + 1)]
    arrived, hosted = np.zeros(bins), np.zeros(bins)
    for index in range(bins):
        start, length = now, float(load.hours[index]) * 3600.0
        times = _arrival_times(float(load.requests_per_second[index]), length, generator)
        sizes = generator.exponential(1.0, len(times))
        arrived[index] = len(times)
        refused = 0
        for time, size in zip(times.tolist(), sizes.tolist(), strict=True):
            now, virtual = _advance(now, virtual, start + time, finishing, pace)
            if len(finishing) < slots:
                heapq.heappush(finishing, virtual + size)
            else:
                refused += 1
        now, virtual = _advance(now, virtual, start + length, finishing, pace)
        hosted[index] = refused
    value = load.value_usd_per_request
    rent = replicas * usd_per_replica_hour * load.total_hours
    return SimulatedBill(arrived, hosted, float((hosted * value).sum()) + rent, float((arrived * value).sum()))


def _arrival_times(rate: float, seconds: float, generator: np.random.Generator) -> FloatArray:
    return np.sort(generator.uniform(0.0, seconds, generator.poisson(rate * seconds)))


def _advance(
    now: float, virtual: float, until: float, finishing: list[float], pace: list[float]
) -> tuple[float, float]:
    """Let requests finish until the wall clock reads `until`; each one that finishes changes the pace of the others."""
    while finishing:
        speed = pace[len(finishing)]
        done_at = now + (finishing[0] - virtual) / speed
        if done_at > until:
            return until, virtual + (until - now) * speed
        now, virtual = done_at, heapq.heappop(finishing)
    return until, virtual
