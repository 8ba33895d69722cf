"""Simulates every arrival of the worked example, one at a time: with the real `decide()`, or with a queue that keeps
its promise by admitting only the traffic it can serve in time."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.overflow.example import (
    LOADS,
    OWN,
    RESIDENCE_SECONDS,
    SLOTS,
    WAIT_SECONDS,
    build_snapshot,
    month_saving_usd,
    request,
)
from benchmarks.overflow.waiting_line import largest_arrival_rate
from gateway.routing.decide import decide

WARM_UP_RESIDENCES = 5.0

GoesIn = Callable[[int, float, float], bool]
"""(free slots, seconds of wait, a draw from [0, 1)) -> whether the engine takes the request."""


@dataclass(frozen=True, slots=True)
class Level:
    """What happened at one load."""

    served_per_second: float
    blocked_share: float
    p95_wait_seconds: float


@dataclass(frozen=True, slots=True)
class Simulated:
    """One discipline over the whole month."""

    levels: dict[float, Level]
    month_saving_usd: float


def simulate_overflow(hours: float, seed: int) -> Simulated:
    """`decide()` is called with the free slots at each arrival."""
    snapshot = build_snapshot()

    def goes_in(free: int, wait_seconds: float, draw: float) -> bool:
        del draw
        return decide(request(free, wait_seconds), snapshot).decision.model == OWN

    return _month(lambda load: _run(load, hours, random.Random(seed), goes_in))


def simulate_queue(hours: float, seed: int) -> Simulated:
    """Admits the share of the traffic that keeps 95 % of first tokens within the target; all of it waits in line."""
    bearable = largest_arrival_rate(SLOTS, RESIDENCE_SECONDS, WAIT_SECONDS)

    def level(load: float) -> Level:
        return _run(load, hours, random.Random(seed), lambda free, wait, draw: draw < bearable / load)

    return _month(level)


def _month(level: Callable[[float], Level]) -> Simulated:
    levels = {load: level(load) for load in LOADS}
    return Simulated(levels, month_saving_usd({load: one.served_per_second for load, one in levels.items()}))


def _run(load: float, hours: float, dice: random.Random, goes_in: GoesIn) -> Level:
    """Poisson arrivals, exponential residence, first come first served."""
    ends: list[float] = []  # heap of when requests in a slot or in line will end
    free_at = [0.0] * SLOTS
    now, served, hosted = 0.0, 0, 0
    waits: list[float] = []
    begin = WARM_UP_RESIDENCES * RESIDENCE_SECONDS
    while now < begin + hours * 3600:
        now += dice.expovariate(load)
        while ends and ends[0] <= now:
            heapq.heappop(ends)
        wait = max(0.0, free_at[0] - now)
        is_inside = goes_in(max(0, SLOTS - len(ends)), wait, dice.random())
        if is_inside:
            leaves = now + wait + dice.expovariate(1 / RESIDENCE_SECONDS)
            heapq.heapreplace(free_at, leaves)
            heapq.heappush(ends, leaves)
        if now >= begin:
            served += is_inside
            hosted += not is_inside
            if is_inside:
                waits.append(wait)
    waits.sort()
    p95 = waits[int(0.95 * len(waits))] if waits else 0.0
    # The share served times the nominal load: randomness in the number of arrivals must not count.
    return Level(load * served / (served + hosted), hosted / (served + hosted), p95)
