"""Hours of single dimensions in descending order of their largest figure: a fast way to the most expensive and slowest
requests among millions."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, Table, and_, case, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.instants import HOUR_US
from gateway.storage.sums.rollup import DAY_HOURS, RANKED
from gateway.storage.tables.books import daily, dimensions, hourly

UNRANKED = 2**62
"""Upper bound for a row whose largest figures are incomplete: a replica of an older version added requests to it."""
AT_ONCE = 50
"""As many as a page has rows: more are rarely needed."""
FIRST_DAYS = 256


class RankedHour(NamedTuple):
    """No request of this hour and dimension has a figure above `most`."""

    most: int
    hour: int
    dimension_id: int

    @property
    def begins_us(self) -> int:
        return self.hour * HOUR_US

    @property
    def ends_us(self) -> int:
        return self.begins_us + HOUR_US


class _Day(NamedTuple):
    most: int
    day: int
    dimension_id: int


async def ranked_hours(
    connection: AsyncConnection, conditions: Sequence[ColumnElement[Any]], largest: str, period_us: tuple[int, int]
) -> AsyncIterator[Sequence[RankedHour]]:
    """Up to AT_ONCE at a time, ordered by one of LARGEST; hours without that figure are omitted. A day's hours are read
    only once they may come next."""
    first, last = period_us[0] // HOUR_US, (period_us[1] - 1) // HOUR_US
    waiting: list[RankedHour] = []
    async for days, next_most in _days(connection, conditions, largest, (first // DAY_HOURS, last // DAY_HOURS)):
        waiting = sorted([*waiting, *await _hours(connection, days, largest, (first, last))], reverse=True)
        count = sum(one.most >= next_most for one in waiting)
        for start in range(0, count, AT_ONCE):
            yield waiting[start : min(start + AT_ONCE, count)]
        waiting = waiting[count:]


async def _days(
    connection: AsyncConnection, conditions: Sequence[ColumnElement[Any]], largest: str, between: tuple[int, int]
) -> AsyncIterator[tuple[Sequence[_Day], int]]:
    """Some days at a time, with the largest figure of the next one."""
    query = _ranked(daily, largest).where(daily.c.day.between(*between))
    if conditions:
        query = query.where(daily.c.dimension_id.in_(select(dimensions.c.id).where(*conditions)))
    query = query.order_by(query.selected_columns[0].desc(), daily.c.day.desc(), daily.c.dimension_id)
    start, known = 0, [_Day(*row) for row in await connection.execute(query.limit(FIRST_DAYS))]
    is_all = len(known) < FIRST_DAYS
    while start < len(known):
        end = start + AT_ONCE
        if end >= len(known) and not is_all:
            known += [_Day(*row) for row in await connection.execute(query.offset(FIRST_DAYS))]
            is_all = True
        yield known[start:end], known[end].most if end < len(known) else 0
        start = end


async def _hours(
    connection: AsyncConnection, days: Sequence[_Day], largest: str, between: tuple[int, int]
) -> list[RankedHour]:
    """The hours of these days and dimensions, listed one by one: for a range, the rows of all dimensions would be
    read."""
    places: list[ColumnElement[bool]] = []
    for one in days:
        begins = one.day * DAY_HOURS
        hours = range(max(between[0], begins), min(between[1] + 1, begins + DAY_HOURS))
        places.append(and_(hourly.c.hour.in_(hours), hourly.c.dimension_id == one.dimension_id))
    return [RankedHour(*row) for row in await connection.execute(_ranked(hourly, largest).where(or_(*places)))]


def _ranked(table: Table, largest: str) -> Select[Any, Any, Any]:
    """An upper bound on the figures in each row, if above 0, with its time and dimension."""
    is_ranked = table.c[RANKED] == table.c.requests + table.c.adjusted_requests
    most: ColumnElement[int] = case((is_ranked, table.c[largest]), else_=UNRANKED)
    return select(most.label("most"), table.columns[0], table.c.dimension_id).where(most > 0)
