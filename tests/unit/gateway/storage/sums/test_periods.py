"""Which hours are cut by a period's ends or local midnights, including daylight saving time."""

from datetime import UTC, datetime

import pytest

from gateway.instants import HOUR_US, microseconds
from gateway.storage.sums.periods import Calendar, cut_hours


def us(*parts: int) -> int:
    return microseconds(datetime(*parts, tzinfo=UTC))


def test_whole_hours_are_not_cut() -> None:
    for zone in ("UTC", "Europe/Berlin", "America/New_York"):
        assert cut_hours(us(2026, 3, 1), us(2026, 4, 1), Calendar(zone, ("day",))) == []


def test_a_half_hour_zone_cuts_one_hour_a_day_and_only_for_days() -> None:
    since, until = us(2026, 1, 1), us(2026, 1, 4)
    cuts = cut_hours(since, until, Calendar("Asia/Kolkata", ("day",)))
    assert [(cut.since_us, cut.until_us) for cut in cuts] == [
        (start, start + HOUR_US // 2) for day in (1, 2, 3) for start in (us(2026, 1, day, 18), us(2026, 1, day, 18, 30))
    ]
    assert cut_hours(since, until, Calendar("Asia/Kolkata", ("model",))) == []


def test_both_ends_in_one_hour() -> None:
    since, until = us(2026, 1, 1, 5, 10), us(2026, 1, 1, 5, 20)
    [cut] = cut_hours(since, until, Calendar("UTC", ()))
    assert (cut.hour * HOUR_US, cut.since_us, cut.until_us) == (us(2026, 1, 1, 5), since, until)


@pytest.mark.parametrize(
    ("moment", "day"),
    [
        (us(2026, 3, 28, 22, 59), "2026-03-28"),
        (us(2026, 3, 28, 23, 0), "2026-03-29"),  # the day that has 23 hours
        (us(2026, 3, 29, 21, 59), "2026-03-29"),
        (us(2026, 3, 29, 22, 0), "2026-03-30"),
        (us(2026, 10, 25, 22, 59), "2026-10-25"),  # the day that has 25
        (us(2026, 10, 25, 23, 0), "2026-10-26"),
    ],
)
def test_days_are_local(moment: int, day: str) -> None:
    calendar = Calendar("Europe/Berlin", ("day",))
    assert calendar.label("day", moment) == day
    assert calendar.label("month", moment) == day[:7]


@pytest.mark.parametrize(
    ("moment", "week", "quarter"),
    [
        (us(2025, 12, 28, 22, 59), "2025-W52", "2025-Q4"),
        (us(2025, 12, 28, 23, 0), "2026-W01", "2025-Q4"),  # Monday of a week whose Thursday is in January
        (us(2025, 12, 31, 23, 0), "2026-W01", "2026-Q1"),
        (us(2027, 1, 3, 22, 59), "2026-W53", "2027-Q1"),
        (us(2026, 9, 30, 21, 59), "2026-W40", "2026-Q3"),
        (us(2026, 9, 30, 22, 0), "2026-W40", "2026-Q4"),
    ],
)
def test_weeks_are_of_iso_8601_and_local_as_quarters_are(moment: int, week: str, quarter: str) -> None:
    calendar = Calendar("Europe/Berlin", ("week",))
    assert calendar.label("week", moment) == week
    assert calendar.label("quarter", moment) == quarter
    assert Calendar("Asia/Kolkata", ("quarter",)).midnights_us(us(2026, 9, 30, 0, 0), us(2026, 10, 1, 0, 0)) == [
        us(2026, 9, 30, 18, 30)
    ]


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc/passwd", "x" * 500])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="no time zone"):
        Calendar(zone, ())
