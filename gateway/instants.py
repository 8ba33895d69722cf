"""Instants as microseconds since the epoch, UTC. Reads no clock."""

from datetime import UTC, date, datetime, timedelta
from typing import overload

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@overload
def microseconds(moment: datetime) -> int: ...
@overload
def microseconds(moment: datetime | None) -> int | None: ...
def microseconds(moment: datetime | None) -> int | None:
    """Exact. The datetime must be aware."""
    return None if moment is None else (moment - EPOCH) // timedelta(microseconds=1)


def moment_of(at_us: int) -> datetime:
    """The inverse of `microseconds`."""
    return EPOCH + timedelta(microseconds=at_us)


LAST_US = microseconds(datetime.max.replace(tzinfo=UTC))
"""End of the year 9999."""


def start_of_day_us(day: date) -> int:
    """At 00:00 UTC."""
    return microseconds(datetime(day.year, day.month, day.day, tzinfo=UTC))
