"""OpenAI's rate-limit headers. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.limits.counters import Rate, Shortage

NO_HEADERS: Final[Mapping[str, str]] = {}
MINUTE_MS: Final = 60_000


def rate_headers(rates: Sequence[Rate], left: Sequence[float]) -> dict[str, str]:
    """`left` is what each rate's bucket holds; of a key's and its team's rate of one kind, the tighter is reported."""
    tightest: dict[str, tuple[float, Rate]] = {}
    for rate, held in zip(rates, left, strict=True):
        kind = rate.bucket.rpartition(":")[2]
        if kind not in tightest or held < tightest[kind][0]:
            tightest[kind] = (held, rate)
    headers: dict[str, str] = {}
    for kind, (held, rate) in tightest.items():
        headers[f"x-ratelimit-limit-{kind}"] = str(rate.per_minute)
        headers[f"x-ratelimit-remaining-{kind}"] = str(max(0, math.floor(held)))
        headers[f"x-ratelimit-reset-{kind}"] = duration(1 - held / rate.per_minute if rate.per_minute else 1.0)
    return headers


def shortage_headers(shortage: Shortage) -> dict[str, str]:
    """The headers of a refusal, for the rate that fell short."""
    rate = shortage.rate
    missing = shortage.wait_seconds * 1000 / MINUTE_MS * rate.per_minute
    return rate_headers([rate], [min(rate.amount, rate.per_minute) - missing])


def duration(minutes: float) -> str:
    """OpenAI's notation: `20ms`, `8.64s`, `1m2s`."""
    milliseconds = max(0, round(minutes * MINUTE_MS))
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    whole, rest = divmod(milliseconds, MINUTE_MS)
    return (f"{whole}m" if whole else "") + f"{rest / 1000:g}s"
