"""Selects the rollup rows that match a report's filters.

A filter that matches few dimensions, such as a single key, looks up each of their days or hours by the primary key. A
range of times would read the rows of every dimension.
"""

from collections.abc import Callable
from typing import Final

from sqlalchemy import ColumnElement, Table, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.storage.sums.filters import conditions
from gateway.storage.sums.spans import Span
from gateway.storage.tables.books import dimensions
from gateway.sums import SumsQuery

MOST_LOOKUPS: Final = 50_000
MOST_TIMES: Final = 10_000
"""Bound parameters of one statement. Both databases accept three times as many."""
RowsOf = Callable[[Span], list[ColumnElement[bool]]]


async def filtered_rows(connection: AsyncConnection, query: SumsQuery, span: Span) -> RowsOf:
    """Returns a function that gives the conditions on the rows of any part of the span."""
    wanted = conditions(query)
    if not wanted:
        return Span.conditions
    matching = select(dimensions.c.id).where(*wanted)
    if isinstance(span.table, Table) and len(booked := await _booked(connection, span)) <= MOST_TIMES:
        most = MOST_LOOKUPS // max(1, len(booked))
        ids = (await connection.execute(matching.limit(most + 1))).scalars().all()
        if len(ids) <= most:
            return lambda part: _looked_up(part, booked, [span.table.c.dimension_id.in_(ids)])
    return lambda part: [*part.conditions(), part.table.c.dimension_id.in_(matching)]


async def _booked(connection: AsyncConnection, span: Span) -> range:
    """The days or hours from the first row in the span to the last."""
    unit = span.table.columns[0]
    inside = unit.between(span.first, span.end - 1)
    first, last = (select(end(unit)).where(inside).scalar_subquery() for end in (func.min, func.max))
    begin, end = (await connection.execute(select(first, last))).one()
    return range(0) if begin is None else range(begin, end + 1)


def _looked_up(part: Span, booked: range, of_these: list[ColumnElement[bool]]) -> list[ColumnElement[bool]]:
    times = range(max(part.first, booked.start), min(part.end, booked.stop))
    return [part.table.columns[0].in_([one for one in times if one not in part.skipped]), *of_these]
