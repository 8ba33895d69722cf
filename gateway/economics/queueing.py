"""Waiting and loss in a pool of slots with Poisson arrivals (Erlang B and C); pure arithmetic.

Loads are in erlangs, A = λ·S: arrivals per second times seconds of residence. The waiting formulas assume exponential
residence, the loss formula holds for any distribution of it.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
MOST_STEPS = 10_000
"""Of the recursion: it takes one for each slot, and a chart asks for fleets of dozens of sizes."""


def erlang_b(slots: int, load_erlangs: float) -> float:
    """Share of arrivals that find every slot taken and leave, by the recursion that does not overflow."""
    blocking = 1.0
    for slot in range(1, slots + 1):
        blocking = load_erlangs * blocking / (slot + load_erlangs * blocking)
    return blocking


def erlang_b_each(slots: int, load_erlangs: FloatArray) -> FloatArray:
    """The same for many loads at once."""
    if slots > MOST_STEPS:
        return _erlang_b_of_many(slots, load_erlangs)
    [blocking] = erlang_b_by_fleet(slots, 1, load_erlangs)
    return blocking


def erlang_b_by_fleet(slots_each: int, most: int, load_erlangs: FloatArray) -> Iterator[FloatArray]:
    """The same of fleets of 1, 2, ... `most` replicas of so many slots, all in one run of the recursion."""
    blocking, slot = np.ones_like(load_erlangs, dtype=np.float64), 0
    for _ in range(most):
        for _ in range(slots_each):
            slot += 1
            blocking = load_erlangs * blocking / (slot + load_erlangs * blocking)
        yield blocking


def _erlang_b_of_many(slots: int, load_erlangs: FloatArray) -> FloatArray:
    """From the definition, the largest term last: 1/B = 1 + c/A + c(c-1)/A² + ..., of which some √A terms count."""
    inverse = np.ones_like(load_erlangs, dtype=np.float64)
    term = inverse.copy()
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        for taken in range(slots, 0, -1):
            term = term * (taken / load_erlangs)
            inverse += term
            if taken % 64 == 0 and not np.any(np.isfinite(inverse) & (term > inverse * 1e-18)):
                break
    return 1.0 / inverse


def erlang_c(slots: int, load_erlangs: float) -> float:
    """Share of arrivals that must wait; 1 when the load is not below the slots (the queue then never ends)."""
    if load_erlangs >= slots:
        return 1.0
    blocking = erlang_b(slots, load_erlangs)
    return blocking / (1.0 - load_erlangs / slots * (1.0 - blocking))


def wait_probability(slots: int, arrivals_per_second: float, residence_seconds: float, wait_seconds: float) -> float:
    """P(wait > `wait_seconds`); 1 when the queue is unstable."""
    drain_per_second = slots / residence_seconds - arrivals_per_second
    if drain_per_second <= 0:
        return 1.0
    return erlang_c(slots, arrivals_per_second * residence_seconds) * math.exp(-drain_per_second * wait_seconds)


def largest_arrival_rate(slots: int, residence_seconds: float, wait_seconds: float, *, quantile: float = 0.95) -> float:
    """Most arrivals per second whose wait stays within `wait_seconds` at `quantile`; 0 for a negative allowance."""
    if wait_seconds < 0:
        return 0.0
    low, high = 0.0, slots / residence_seconds
    for _ in range(60):  # the tail rises with the rate, so halving finds it to the last binary digits
        middle = (low + high) / 2
        if wait_probability(slots, middle, residence_seconds, wait_seconds) <= 1 - quantile:
            low = middle
        else:
            high = middle
    return low
