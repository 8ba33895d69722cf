"""Remaining rates in OpenAI's headers."""

import pytest

from gateway.limits.counters import Rate, Shortage
from gateway.limits.rate_headers import duration, rate_headers, shortage_headers

REQUESTS = Rate("key:k:requests", 1, 60)
TOKENS = Rate("key:k:tokens", 500, 10_000)


def told(kind: str, limit: str, remaining: str, reset: str) -> dict[str, str]:
    names = ("limit", "remaining", "reset")
    return {f"x-ratelimit-{name}-{kind}": text for name, text in zip(names, (limit, remaining, reset), strict=True)}


@pytest.mark.parametrize(
    ("rates", "left", "expected"),
    [
        ([REQUESTS], [59.0], told("requests", "60", "59", "1s")),
        ([TOKENS], [9_500.4], told("tokens", "10000", "9500", "2.998s")),
        ([REQUESTS, TOKENS], [60.0, 0.0], told("requests", "60", "60", "0ms") | told("tokens", "10000", "0", "1m0s")),
        ([REQUESTS, Rate("team:t:requests", 1, 5)], [10.0, 4.0], told("requests", "5", "4", "12s")),
        ([TOKENS], [-10_000.0], told("tokens", "10000", "0", "2m0s")),
        ([Rate("key:k:requests", 1, 0)], [0.0], told("requests", "0", "0", "1m0s")),
        ([], [], {}),
    ],
)
def test_what_is_told(rates: list[Rate], left: list[float], expected: dict[str, str]) -> None:
    assert rate_headers(rates, left) == expected


@pytest.mark.parametrize(
    ("shortage", "expected"),
    [
        (Shortage(REQUESTS, 0.5), told("requests", "60", "0", "59.5s")),
        (Shortage(TOKENS, 1.5), told("tokens", "10000", "250", "58.5s")),
        (Shortage(Rate("key:k:tokens", 50_000, 10_000), 6.0), told("tokens", "10000", "9000", "6s")),
    ],
)
def test_a_refusal_tells_of_the_rate_that_lacked_something(shortage: Shortage, expected: dict[str, str]) -> None:
    assert shortage_headers(shortage) == expected


@pytest.mark.parametrize(
    ("minutes", "expected"), [(-1, "0ms"), (0.0001, "6ms"), (0.5, "30s"), (1 + 1 / 60, "1m1s"), (0.0225, "1.35s")]
)
def test_durations_are_written_as_openai_writes_them(minutes: float, expected: str) -> None:
    assert duration(minutes) == expected
