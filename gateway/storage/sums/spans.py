"""The rows of the rollups that make up a period."""

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import ColumnElement, Subquery, Table

from gateway.instants import HOUR_US
from gateway.storage.sums.corrections import Totals, taken_back
from gateway.storage.sums.rollup import DAY_HOURS
from gateway.storage.tables.books import daily, hourly
from gateway.sums import TIMES, SumsQuery

PART_HOURS: Final = 14 * DAY_HOURS
"""Sums are read and kept by fortnights, counted from 1970, so that they are the same whenever a period begins."""


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of a rollup table, or of a subquery like one, from `first` to before `end`, except `skipped`."""

    table: Table | Subquery
    unit_us: int
    first: int
    end: int
    skipped: frozenset[int] = frozenset()

    def conditions(self) -> list[ColumnElement[bool]]:
        """Conditions that select its rows."""
        unit = self.table.columns[0]
        bounds = [unit >= self.first, unit < self.end]
        return [*bounds, unit.not_in(sorted(self.skipped))] if self.skipped else bounds

    def at_us(self, row: Totals) -> int | None:
        """When the sums of this row begin; None if they are those of all rows."""
        return row["at"] * self.unit_us if "at" in row else None

    def contains(self, other: "Span") -> bool:
        is_around = self.table is other.table and self.first <= other.first and other.end <= self.end
        return is_around and self.skipped <= other.skipped

    def within(self, first_us: int, end_us: int) -> "Span":
        """The part that contains these times."""
        end = min(self.end, -(-end_us // self.unit_us))
        return replace(self, first=max(self.first, first_us // self.unit_us), end=end)

    def halves(self, last_us: int) -> list["Span"]:
        """What may be kept for long, and the rest until the last booking, which every request changes."""
        size = PART_HOURS * HOUR_US // self.unit_us
        cut = min(last_us // self.unit_us, self.end - 1) // size * size
        return [replace(self, end=cut), replace(self, first=cut)] if self.first < cut < self.end else [self]

    def part(self, first: int, hours: int) -> "Span":
        """The part from `first` on, of at most this many hours."""
        return replace(self, first=first, end=min(first + hours * HOUR_US // self.unit_us, self.end))


def spans(query: SumsQuery, *, skipped: Set[int]) -> list[Span]:
    """The spans of the period: whole UTC days from the daily sums, unless the query needs hours."""
    first, end = query.since_us // HOUR_US, -(-query.until_us // HOUR_US)
    needs_hours = "hour" in query.by or (set(TIMES) & set(query.by) and query.time_zone != "UTC")
    first_day, end_day = -(-first // DAY_HOURS), end // DAY_HOURS
    if needs_hours or first_day >= end_day:
        return [Span(hourly, HOUR_US, first, end, frozenset(skipped))]
    # A day with a skipped hour is read hour by hour.
    broken = frozenset(hour // DAY_HOURS for hour in skipped if first_day <= hour // DAY_HOURS < end_day)
    found = [Span(daily, HOUR_US * DAY_HOURS, first_day, end_day, broken)]
    edges = [(first, first_day * DAY_HOURS), (end_day * DAY_HOURS, end)]
    edges += [(day * DAY_HOURS, (day + 1) * DAY_HOURS) for day in sorted(broken)]
    return found + [Span(hourly, HOUR_US, start, stop, frozenset(skipped)) for start, stop in edges if start < stop]


def later_corrections(query: SumsQuery, *, skipped: Set[int]) -> list[Span]:
    """Spans over the same hours that cancel corrections booked too late to count; empty without `as_of_us`."""
    if query.as_of_us is None:
        return []
    first, end = query.since_us // HOUR_US, -(-query.until_us // HOUR_US)
    return [Span(taken_back(query.as_of_us), HOUR_US, first, end, frozenset(skipped))]
