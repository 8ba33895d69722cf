"""Clamps and cleans an entry's numbers and texts so that a database accepts them: one absurd value must not stop the
ledger. Pure."""

import math
from collections.abc import Sequence
from typing import Any

MOST_TOKENS = 10**12
MOST_CALLS = 10**9
MOST_PICO_USD = 10**17  # $100,000 for one request
MOST_US = 10**15


def micros(seconds: float | None) -> int | None:
    """Whole microseconds within bounds; None also for NaN and infinity."""
    if seconds is None:
        return None
    us = seconds * 1e6 + 0.5
    if 0.0 <= us < MOST_US:  # the fast path: called six times per row
        return int(us)
    return fit(round(seconds * 1e6), MOST_US) if math.isfinite(seconds) else None


def finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def seconds(us: int | None) -> float | None:
    return None if us is None else us / 1e6


def fit(number: int, most: int) -> int:
    """Clamps to bounds that nothing real reaches: an absurd count must not overflow a sum."""
    if -most <= number <= most:  # the fast path: called for every figure of every row
        return number
    return most if number > 0 else -most


def all_fit(numbers: Sequence[int], most: int) -> Sequence[int]:
    """`fit` for several numbers, nearly always unchanged."""
    if -most <= min(numbers) and max(numbers) <= most:
        return numbers
    return [fit(number, most) for number in numbers]


def money(pico_usd: int | None) -> int | None:
    return None if pico_usd is None else fit(pico_usd, MOST_PICO_USD)


def clean(text: str | None) -> Any:
    """Replaces NULs and lone surrogates, which PostgreSQL rejects in text."""
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
