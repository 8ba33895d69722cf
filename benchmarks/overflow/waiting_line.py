"""The discipline to compare overflow with: a queue in front of the slots that keeps its promise (Erlang C). Pure.

Loads are in erlangs, A = λ·S: arrivals per second times seconds of residence, which is assumed exponential.
"""

import math

QUANTILE = 0.95


def erlang_b(slots: int, load_erlangs: float) -> float:
    """Share of arrivals that find every slot taken and leave, by the numerically stable recursion."""
    blocking = 1.0
    for slot in range(1, slots + 1):
        blocking = load_erlangs * blocking / (slot + load_erlangs * blocking)
    return blocking


def erlang_c(slots: int, load_erlangs: float) -> float:
    """Share of arrivals that must wait; 1 if the load is not below the slots, since the queue then grows for ever."""
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


def largest_arrival_rate(slots: int, residence_seconds: float, wait_seconds: float) -> float:
    """Most arrivals per second whose wait stays within `wait_seconds` at QUANTILE; 0 for a negative allowance."""
    if wait_seconds < 0:
        return 0.0
    low, high = 0.0, slots / residence_seconds
    for _ in range(60):  # the probability rises with the rate, so bisection finds it
        middle = (low + high) / 2
        if wait_probability(slots, middle, residence_seconds, wait_seconds) <= 1 - QUANTILE:
            low = middle
        else:
            high = middle
    return low
