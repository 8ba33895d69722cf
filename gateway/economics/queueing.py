"""Erlang B: the share of Poisson arrivals that find every slot of a pool taken, and leave. Pure arithmetic.

Loads are in erlangs, A = λ·S: arrivals per second times mean seconds of residence, whatever its distribution.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
MOST_STEPS = 10_000
"""Limit of the recursion, which takes one step per slot; a chart asks for dozens of fleet sizes."""


def erlang_b_each(slots: int, load_erlangs: FloatArray) -> FloatArray:
    """Blocking for many loads at once, by the recursion that does not overflow (up to MOST_STEPS slots)."""
    if slots > MOST_STEPS:
        return _erlang_b_of_many(slots, load_erlangs)
    [blocking] = erlang_b_by_fleet(slots, 1, load_erlangs)
    return blocking


def erlang_b_by_fleet(slots_each: int, most: int, load_erlangs: FloatArray) -> Iterator[FloatArray]:
    """The same for fleets of 1, 2, ... `most` replicas with `slots_each` slots, in a single run of the recursion."""
    blocking, slot = np.ones_like(load_erlangs, dtype=np.float64), 0
    for _ in range(most):
        for _ in range(slots_each):
            slot += 1
            blocking = load_erlangs * blocking / (slot + load_erlangs * blocking)
        yield blocking


def _erlang_b_of_many(slots: int, load_erlangs: FloatArray) -> FloatArray:
    """From the definition, 1/B = 1 + c/A + c(c-1)/A² + ..., of which only about √A terms matter."""
    inverse = np.ones_like(load_erlangs, dtype=np.float64)
    term = inverse.copy()
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        for taken in range(slots, 0, -1):
            term = term * (taken / load_erlangs)
            inverse += term
            if taken % 64 == 0 and not np.any(np.isfinite(inverse) & (term > inverse * 1e-18)):
                break
    return 1.0 / inverse
