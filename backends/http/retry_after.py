"""How long an upstream asks to wait: in a header, or in words of an error's body."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_RETRY_DELAY: Final = re.compile(
    rb'"retryDelay"\s*:\s*"([^"]{1,20})"|"retry_after"\s*:\s*"?(\d{1,9}(?:\.\d{1,9})?)'
    rb"|(?:try again|retry) (?:in|after) ((?:\d{1,9}(?:\.\d{1,9})? ?(?:h|ms|m|s)){1,3})"
)
_SPAN: Final = re.compile(rb"(\d{1,9}(?:\.\d{1,9})?) ?(h|ms|m|s)")
_SECONDS: Final[Mapping[bytes, float]] = {b"h": 3600.0, b"m": 60.0, b"s": 1.0, b"ms": 0.001}
_LONGEST_RETRY_AFTER_SECONDS: Final = 7 * 86_400.0


def _utc_now() -> datetime:
    return datetime.now(UTC)


def parse_retry_after(headers: Mapping[str, str], now: Callable[[], datetime] = _utc_now) -> float | None:
    """Seconds to wait: `retry-after-ms`, or `retry-after` as seconds or as an HTTP date; None when absent or absurd.

    Lookups in `headers` must ignore case.
    """
    milliseconds = _finite(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    text = headers.get("retry-after")
    if text is None:
        return None
    seconds = _finite(text)
    if seconds is not None:
        return _bounded(seconds)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return _bounded((date - now()).total_seconds())


def retry_delay_in(body: bytes) -> float | None:
    """The seconds to wait that an error tells: Google's `"retryDelay": "34s"`, other gateways' `"retry_after": 34`, or
    "Please try again in 1m2.5s", as OpenAI, Groq, Azure and Moonshot put it."""
    match = _RETRY_DELAY.search(body)
    if match is None:
        return None
    if match[2]:
        return _bounded(float(match[2]))
    spans = _SPAN.findall(match[1] or match[3])
    return _bounded(sum(float(count) * _SECONDS[unit] for count, unit in spans)) if spans else None


def _finite(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _bounded(seconds: float) -> float | None:
    return max(0.0, seconds) if seconds <= _LONGEST_RETRY_AFTER_SECONDS else None
