"""Finds hours with requests of certain dimensions in the sums, newest first: a fast way to few requests among
millions."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.instants import HOUR_US
from gateway.storage.sums.rollup import DAY_HOURS
from gateway.storage.tables.books import daily, dimensions, hourly

MOST_NUMBERED = 2000
"""Dimensions whose ids are read once. The ids of more are a subquery of each question, which scans all dimensions."""


async def busy_hours(
    connection: AsyncConnection, conditions: list[ColumnElement[Any]], since_us: int, until_us: int
) -> AsyncIterator[tuple[int, int]]:
    """Beginning and end of each hour, in microseconds. Searches days first, of which there are few."""
    matching = select(dimensions.c.id).where(*conditions)
    few = (await connection.execute(matching.limit(MOST_NUMBERED + 1))).scalars().all()
    ids = few if len(few) <= MOST_NUMBERED else matching
    first, hour = since_us // HOUR_US, (until_us - 1) // HOUR_US
    while (day := await _last(connection, daily, ids, first // DAY_HOURS, hour // DAY_HOURS)) is not None:
        begins = max(first, day * DAY_HOURS)
        hour = min(hour, (day + 1) * DAY_HOURS - 1)
        while (found := await _last(connection, hourly, ids, begins, hour)) is not None:
            yield found * HOUR_US, (found + 1) * HOUR_US
            hour = found - 1
        hour = day * DAY_HOURS - 1


async def _last(
    connection: AsyncConnection, table: Table, ids: Sequence[int] | Select[Any], first: int, last: int
) -> int | None:
    unit = table.columns[0]
    inside = (unit.between(first, last), table.c.dimension_id.in_(ids), table.c.requests > 0)
    return (await connection.execute(select(unit).where(*inside).order_by(unit.desc()).limit(1))).scalar()
