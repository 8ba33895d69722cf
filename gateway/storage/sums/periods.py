"""Hours, days, weeks, months and quarters of a time zone over UTC hours. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from gateway.instants import HOUR_US, microseconds, moment_of
from gateway.sums import TIMES


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of the period whose single requests are added up: of an hour, within one local day; or a `piece`."""

    since_us: int
    until_us: int

    @property
    def hour(self) -> int:
        """The UTC hour since the epoch in which it begins."""
        return self.since_us // HOUR_US


class Calendar:
    """The local calendar for the requested time dimensions. Raises ValueError for an unknown time zone."""

    def __init__(self, time_zone: str, by: Sequence[str]) -> None:
        try:
            self._zone = ZoneInfo(time_zone)
        except (KeyError, OSError, ValueError) as error:
            raise ValueError(f"there is no time zone {time_zone[:64]!r}; use a name such as Europe/Berlin") from error
        self._has_days = any(name in TIMES and name != "hour" for name in by)

    def label(self, unit: str, at_us: int) -> str:
        """`2026-01-31T13:00Z`, `2026-01-31`, `2026-W05`, `2026-01` or `2026-Q1`."""
        moment = moment_of(at_us)
        if unit == "hour":
            return moment.strftime("%Y-%m-%dT%H:00Z")
        local = moment.astimezone(self._zone)
        if unit == "quarter":
            return f"{local.year}-Q{(local.month + 2) // 3}"
        return local.strftime({"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}[unit])

    def midnights_us(self, since_us: int, until_us: int) -> list[int]:
        """Local midnights within the period, taking daylight saving time into account."""
        if not self._has_days:
            return []
        day = moment_of(since_us).astimezone(self._zone).date()
        found: list[int] = []
        while True:
            midnight = datetime(day.year, day.month, day.day, tzinfo=self._zone).astimezone(UTC)
            at_us = microseconds(midnight)
            if at_us >= until_us:
                return found
            if at_us > since_us:
                found.append(at_us)
            day += timedelta(days=1)


def pieces(since_us: int, until_us: int, calendar: Calendar, by: Sequence[str]) -> list[Cut]:
    """The whole period in parts that are each in one group by time."""
    times = [name for name in by if name in TIMES]
    hours = range(since_us // HOUR_US + 1, -(-until_us // HOUR_US)) if "hour" in times else ()
    inside = {*calendar.midnights_us(since_us, until_us), *(hour * HOUR_US for hour in hours)}
    starts: dict[tuple[str, ...], int] = {}
    for start in sorted({since_us, *inside}):
        starts.setdefault(tuple(calendar.label(name, start) for name in times), start)
    return [Cut(start, end) for start, end in pairwise([*starts.values(), until_us])]


def cut_hours(since_us: int, until_us: int, calendar: Calendar, booked_us: tuple[int, int] | None = None) -> list[Cut]:
    """The hours cut by the period's ends or a local midnight, in pieces; all others count as a whole.

    Midnights are searched only within `booked_us`, since a period may be arbitrarily long.
    """
    first_us, last_us = booked_us or (since_us, until_us)
    marks = [mark for mark in (since_us, until_us) if mark % HOUR_US]
    marks += [at for at in calendar.midnights_us(max(since_us, first_us), min(until_us, last_us)) if at % HOUR_US]
    inside: dict[int, set[int]] = {}
    for mark in marks:
        inside.setdefault(mark // HOUR_US, set()).add(mark)
    cuts: list[Cut] = []
    for hour in sorted(inside):
        edges = sorted({hour * HOUR_US, (hour + 1) * HOUR_US, *inside[hour]})
        cuts += [Cut(start, end) for start, end in pairwise(edges) if start >= since_us and end <= until_us]
    return cuts
