"""Which times of an axis have labels."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from dashboards.ticks import DAY_OF_A_YEAR_OR_HOUR, DAY_OR_HOUR, MONTH, MOST, named_times

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def named(since: str, every: timedelta, count: int, each: str) -> list[datetime]:
    start = datetime.fromisoformat(since)
    labels = named_times([(start + n * every).isoformat() for n in range(count)], each)
    return [datetime.fromtimestamp(ms / 1000, UTC) for ms in labels["customValues"]]


@pytest.mark.parametrize(
    ("every", "count", "each", "step"),
    [
        (DAY, 1, "day", DAY),
        (DAY, 16, "day", DAY),
        (DAY, 31, "day", 2 * DAY),
        (DAY, 60, "day", 4 * DAY),
        (HOUR, 24, "hour", 2 * HOUR),
        (HOUR, 168, "hour", 12 * HOUR),
        (HOUR, 720, "hour", 2 * DAY),
        (HOUR, 365 * 24, "hour", 28 * DAY),
        (7 * DAY, 40, "week", 21 * DAY),
    ],
)
def test_named_times_are_equally_far_apart(every: timedelta, count: int, each: str, step: timedelta) -> None:
    """`29`, `Nov`, `2` and `5` used to stand side by side."""
    found = named("2026-10-27T00:00+00:00", every, count, each)
    assert {later - earlier for earlier, later in pairwise(found)} <= {step}
    assert 1 <= len(found) <= MOST


def test_hours_are_named_from_midnight_on_and_days_without_spend_leave_no_gap() -> None:
    assert {one.hour for one in named("2026-11-25T21:00+00:00", HOUR, 24, "hour")} == set(range(0, 24, 2))
    days = named_times(["2026-11-01", "2026-11-09", "2026-11-10"], "day")["customValues"]
    assert len(days) == 10
    assert named_times([], "day")["customValues"] == []


def test_a_month_is_named_with_its_year_and_a_day_with_its_month() -> None:
    assert named_times(["2026-11-01", "2026-12-01"], "month") == {
        ":formatter": MONTH,
        "customValues": [1_793_491_200_000, 1_796_083_200_000],
    }
    assert named_times([], "week")[":formatter"] == DAY_OR_HOUR
    assert named_times(["2026-01-01", "2026-12-31"], "day")[":formatter"] == DAY_OR_HOUR
    of_a_year = named_times(["2025-11-27", "2026-11-26"], "day")[":formatter"]
    assert of_a_year == DAY_OF_A_YEAR_OR_HOUR != DAY_OR_HOUR, "from 27 Nov to 26 Nov"
