"""A lower bound on a query's number of groups, without computing sums, which would be most of the work."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.instants import HOUR_US
from gateway.storage.sums.filtered_rows import filtered_rows
from gateway.storage.sums.filters import COLUMNS, conditions, of_end_user
from gateway.storage.sums.rollup import DAY_HOURS
from gateway.storage.sums.spans import Span
from gateway.storage.tables.books import daily, dimensions, entries, hourly
from gateway.sums import TIMES, SumsQuery, TooManyGroups

UTC_DAYS_OF_A_LOCAL_ONE = 3
"""A local day overlaps at most this many: one of 25 hours can begin before a UTC midnight and end after the next."""


async def refuse_too_many(
    connection: AsyncConnection, queries: Sequence[SumsQuery], booked_us: tuple[int, int]
) -> None:
    """Raises TooManyGroups if a query certainly has more than its `most_groups`; others may turn out to, later."""
    for query in queries:
        if query.most_groups is not None and await _least(connection, query, booked_us) > query.most_groups:
            raise TooManyGroups


async def refuse_too_many_end_users(connection: AsyncConnection, queries: Sequence[SumsQuery]) -> None:
    """The same of end users, who are counted in the single requests: a million of them would be read before any other
    count."""
    for query in queries:
        if query.most_groups is not None and "end_user" in query.by:
            within = entries.c.accepted_at_us.between(query.since_us, query.until_us - 1)
            source = entries.join(dimensions, dimensions.c.id == entries.c.dimension_id)
            who = select(entries.c.end_user).select_from(source).where(within, *conditions(query), *of_end_user(query))
            if await _count(connection, who.limit(query.most_groups + 1)) > query.most_groups:
                raise TooManyGroups


async def _least(connection: AsyncConnection, query: SumsQuery, booked_us: tuple[int, int]) -> int:
    """The lower bound; 0 if the dimensions alone show that there are few."""
    is_hourly, is_timed = "hour" in query.by, "hour" in query.by or "day" in query.by
    table, unit_us = (hourly, HOUR_US) if is_hourly else (daily, HOUR_US * DAY_HOURS)
    unit, since_us, until_us = table.columns[0], max(query.since_us, booked_us[0]), min(query.until_us, booked_us[1])
    first, end = -(-since_us // unit_us), until_us // unit_us
    # Weeks and longer units, and tags, are left out: without them there are no more groups than with them.
    keys: list[ColumnElement[Any]] = [dimensions.c[COLUMNS[name]] for name in query.by if name not in (*TIMES, "tag")]
    kinds = await _count(connection, select(*keys).where(*conditions(query))) if keys else int(is_timed)
    if kinds * (max(0, end - first) if is_timed else 1) <= (query.most_groups or 0):
        return 0
    keys += [unit] if is_timed else []
    source = table.join(dimensions, dimensions.c.id == table.c.dimension_id)
    span = Span(table, unit_us, first, end)
    rows = await filtered_rows(connection, query, span)
    found = await _count(connection, select(*keys).select_from(source).where(*rows(span)))
    return found if is_hourly or query.time_zone == "UTC" else found // UTC_DAYS_OF_A_LOCAL_ONE


async def _count(connection: AsyncConnection, groups: Select[Any]) -> int:
    """The number of distinct rows."""
    return (await connection.execute(select(func.count()).select_from(groups.distinct().subquery()))).scalar_one()
