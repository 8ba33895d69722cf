from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gateway.limits.values import parse_limits, window_end, window_id, window_start

NOW_US = 1_795_000_000_000_000


@pytest.mark.parametrize(
    ("window", "start", "end"),
    [
        ("day", datetime(2026, 11, 18, tzinfo=UTC), datetime(2026, 11, 19, tzinfo=UTC)),
        ("month", datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)),
        ("total", datetime(1970, 1, 1, tzinfo=UTC), None),
    ],
)
def test_windows(window: Any, start: datetime, end: datetime | None) -> None:
    assert window_start(window, NOW_US) == start
    assert window_end(window, NOW_US) == end
    assert window_id(window, NOW_US) == f"{window}:{start:%Y-%m-%d}"


def test_december_ends_in_january() -> None:
    at = datetime(2026, 12, 31, 23, tzinfo=UTC)
    assert window_end("month", round(at.timestamp() * 1e6)) == datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "stored",
    [
        {"budget": "1"},
        {"budget_usd": "lots"},
        {"budget_usd": "-1"},
        {"requests_per_minute": "x"},
        {"tier_quotas": {"premium": {"requests": -1}}},
        {"tier_quotas": {"premium": 3}},
    ],
)
def test_broken_limits_are_errors(stored: dict[str, Any]) -> None:
    with pytest.raises((msgspec.ValidationError, ValueError, ArithmeticError)):
        parse_limits(stored)
