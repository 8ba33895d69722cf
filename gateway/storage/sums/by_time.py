"""Reads sums for groups by time, one part of the time after the other, as columns of integers. Added up by the database
over a whole year, all rows would be sorted at once; and what was read of a past part stays valid as time goes on.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from sqlalchemy import literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.instants import HOUR_US
from gateway.storage.sums.by_dimension import Known, SpanSums, read_figures, sum_of
from gateway.storage.sums.filtered_rows import RowsOf
from gateway.storage.sums.filters import COLUMNS
from gateway.storage.sums.periods import Calendar
from gateway.storage.sums.rollup import DAY_HOURS
from gateway.storage.sums.spans import PART_HOURS, Span
from gateway.storage.sums.sum_rows import first_booked
from gateway.storage.tables.books import dimensions
from gateway.sums import TIMES, SumsQuery

UNITS: Final = {HOUR_US: "hour", DAY_HOURS * HOUR_US: "day"}


@dataclass(frozen=True, slots=True)
class TimedSums:
    """A row of figures for each hour or day in `at` and each set of values in `columns`, which are as long."""

    sums: SpanSums
    at: Any
    columns: Sequence[Sequence[Any]]

    @property
    def size(self) -> int:
        """Bytes, without the values: they are shared, as few differ."""
        return self.sums.size + int(self.at.nbytes) * (1 + len(self.columns))


async def timed_parts(
    connection: AsyncConnection, query: SumsQuery, span: Span, calendar: Calendar
) -> AsyncIterator[Span]:
    """The parts of a span that have rows. Unless the groups are by the span's own unit, a part is within one group."""
    times = [name for name in query.by if name in TIMES]
    size = PART_HOURS * HOUR_US // span.unit_us

    def labels(at: int) -> list[str]:
        return [calendar.label(name, at * span.unit_us) for name in times]

    first = await first_booked(connection, span, span.first)
    while first is not None:
        if UNITS[span.unit_us] in times:
            # Not in parts if there are filters, which would be met again in each.
            end = span.end if query.filters else min((first // size + 1) * size, span.end)
        else:
            here = labels(first)
            end = next((at for at in range(first + 1, span.end) if labels(at) != here), span.end)
        yield replace(span, first=first, end=end)
        first = await first_booked(connection, span, end)


async def timed_sums(
    connection: AsyncConnection, query: SumsQuery, part: Span, names: Sequence[str], rows: RowsOf
) -> TimedSums:
    """Sums of one of the `timed_parts`. Raises TooLarge."""
    unit = part.table.columns[0]
    kinds = [dimensions.c[name] for name in columns_of(query)]
    is_by_unit = UNITS[part.unit_us] in query.by
    keys = [unit, *kinds] if is_by_unit else kinds
    sums = [sum_of(connection, part.table.c[name]).label(name) for name in names]
    at = unit if is_by_unit else literal(part.first)
    source = part.table.join(dimensions, dimensions.c.id == part.table.c.dimension_id)
    found = select(*kinds, at.label("at"), *sums).select_from(source).where(*rows(part)).group_by(*keys)
    values, figures = await read_figures(connection, found, len(kinds))
    return TimedSums(SpanSums(tuple(names), np.arange(len(figures[0])), figures[1:]), figures[0], values)


def columns_of(query: SumsQuery) -> list[str]:
    """The columns of `dimensions` that tell the groups apart, and those for BY_STATUS."""
    columns = [COLUMNS[name] for name in query.by if name not in TIMES]
    return list(dict.fromkeys([*columns, "status", "is_simulated"]))


def with_times(found: TimedSums, query: SumsQuery, label: Callable[[str, int], str]) -> tuple[SpanSums, Known]:
    """For `grouped`; `label` names the hour or day in `at` as a group of a time dimension."""
    columns: dict[str, Sequence[Any]] = dict(zip(columns_of(query), found.columns, strict=True))
    different, places = np.unique(found.at, return_inverse=True)
    for name in query.by:
        if name in TIMES:
            labels = [label(name, at) for at in different.tolist()]
            columns[name] = [labels[place] for place in places.tolist()]
    return found.sums, Known(found.sums.ids, columns)
