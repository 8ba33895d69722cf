"""Times as people write them."""

from datetime import UTC, datetime, timedelta

import pytest

from gateway.moments import localised, parse_moment


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T12:00+02:00", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        ("0001-01-01", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_time_without_a_zone_is_utc(written: object, moment: datetime) -> None:
    assert parse_moment(written) == moment
    assert parse_moment(written).utcoffset() == timedelta()


@pytest.mark.parametrize("written", ["yesterday", "2026-02-30", "0001-01-01T00:00+14:00", "9999-12-31T23:59-12:00", ""])
def test_a_time_that_is_none_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is "):
        parse_moment(written)


def test_a_time_that_its_own_zone_puts_before_the_first_is_refused() -> None:
    asked = localised({"since": "0001-01-01", "time_zone": "Asia/Tokyo"})
    with pytest.raises(ValueError, match="outside the years 1 to 9999"):
        parse_moment(asked["since"])
