"""Sums by end user, added up from the single requests: in the sums kept, each end user would be a row an hour, and they
would outlast the requests.
"""

import asyncio

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.instants import HOUR_US
from gateway.storage.sums.by_dimension import Known, SpanSums, TooLarge, read_figures, sum_of
from gateway.storage.sums.by_time import columns_of
from gateway.storage.sums.cut_hours import moved_in, requests_of
from gateway.storage.sums.filters import conditions
from gateway.storage.sums.groups import Groups
from gateway.storage.sums.periods import Calendar, Cut, pieces
from gateway.storage.sums.sum_rows import column_of, cut_sums, names_of
from gateway.storage.tables.books import dimensions, entries
from gateway.sums import TIMES, SumsQuery


def is_by_end_user(query: SumsQuery) -> bool:
    return "end_user" in query.by or "end_user" in query.filters


async def add_requests(connection: AsyncConnection, groups: Groups, query: SumsQuery) -> None:
    """Adds the stored requests of the period, and the corrections since the first of them."""
    first_us, last_us = await _stored(connection, query.since_us)
    since_us, until_us = first_us // HOUR_US * HOUR_US, min(query.until_us, last_us + 1)
    if (since_us := max(query.since_us, since_us)) >= until_us:
        return
    async for at_us, row in moved_in(connection, query, Cut(since_us, until_us)):
        groups.add(at_us, row)
    for cut in pieces(since_us, until_us, groups.calendar, query.by):
        if cut.until_us <= first_us:  # if a clock was once unset, the books begin in 1970
            continue
        try:
            sums, known = await _columns(connection, query, cut, groups.calendar)
        except TooLarge:
            async for row in cut_sums(connection, query, cut):
                groups.add(cut.since_us, row)
        else:
            await asyncio.to_thread(groups.add_columns, sums, known)
            if not len(sums.ids):
                first_us, _ = await _stored(connection, cut.until_us)


async def _stored(connection: AsyncConnection, since_us: int) -> tuple[int, int]:
    """When the first request from then on was accepted, and the last of all; (0, -1) if there is none."""
    at = entries.c.accepted_at_us
    first, last = select(func.min(at)).where(at >= since_us).scalar_subquery(), select(func.max(at)).scalar_subquery()
    first_us, last_us = (await connection.execute(select(first, last))).one()
    return (0, -1) if first_us is None else (first_us, last_us)


async def _columns(
    connection: AsyncConnection, query: SumsQuery, cut: Cut, calendar: Calendar
) -> tuple[SpanSums, Known]:
    """For `grouped`. Raises TooLarge."""
    table, names = requests_of(cut, query), columns_of(query)
    kinds = [column_of(name, table) for name in names]
    sums = [sum_of(connection, table.c[name]).label(name) for name in names_of(query)]
    source = table.join(dimensions, dimensions.c.id == table.c.dimension_id)
    found = select(*kinds, *sums).select_from(source).where(*conditions(query)).group_by(*kinds)
    values, figures = await read_figures(connection, found, len(kinds))
    ids = np.arange(len(figures[0]))
    columns = dict(zip(names, values, strict=True))
    for name in query.by:
        if name in TIMES:
            columns[name] = [calendar.label(name, cut.since_us)] * len(ids)
    return SpanSums(names_of(query), ids, figures), Known(ids, columns)
