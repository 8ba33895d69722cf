"""Erlang B: what share of Poisson arrivals finds every slot of a pool taken, and leaves. Pure arithmetic.

Loads are in erlangs, A = λ·S: arrivals per second times seconds of residence, whatever its distribution.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
MOST_STEPS = 10_000
"""Of the recursion: it takes one for each slot, and a chart asks for fleets of dozens of sizes."""


def erlang_b_each(slots: int, load_erlangs: FloatArray) -> FloatArray:
    """Of many loads at once, by the recursion that does not overflow."""
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
