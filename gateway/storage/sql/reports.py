"""Sums by any dimensions, from the hourly rollups; partial hours, cut by a period's ends or a local midnight, are
summed from the entries.

See gateway.stores.ReportStore. Sums are exact integers on both databases, even beyond 64 bits.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Self

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.economics.traffic import HourlyTraffic
from gateway.instants import DAY_US, HOUR_US
from gateway.storage.database import CORRECTIONS_LOCK, at_one_moment, lock, writing
from gateway.storage.sums.by_dimension import (
    Known,
    SpanSums,
    TooLarge,
    joined,
    known_dimensions,
    sums_by_dimension,
)
from gateway.storage.sums.by_end_user import add_requests, is_by_end_user
from gateway.storage.sums.by_time import UNITS, columns_of, timed_parts, timed_sums, with_times
from gateway.storage.sums.cut_hours import Totals, moved_in
from gateway.storage.sums.filtered_rows import RowsOf, filtered_rows
from gateway.storage.sums.filters import conditions
from gateway.storage.sums.group_count import refuse_too_many, refuse_too_many_end_users
from gateway.storage.sums.groups import Groups
from gateway.storage.sums.kept_sums import KeptSums
from gateway.storage.sums.periods import Calendar, Cut, cut_hours
from gateway.storage.sums.spans import Span, later_corrections, spans
from gateway.storage.sums.sum_rows import (
    cut_sketches,
    cut_sums,
    names_of,
    rollup_sketches,
    rollup_sums,
)
from gateway.storage.sums.traffic import hourly_traffic
from gateway.storage.tables.administration import api_keys
from gateway.storage.tables.books import dimensions, entries, hourly
from gateway.sums import TIMES, Sums, SumsQuery

KEYS_AT_ONCE = 500
MOST_DIMENSIONS = 250_000
"""The most dimensions whose sums are loaded at once (66 MB). If tags create more, the database does the summing."""
Reading = Callable[[AsyncConnection, SumsQuery, Span, RowsOf], AsyncIterator[Totals]]


class SqlReports:
    """Reads the sums that the shipper wrote."""

    def __init__(self, engine: AsyncEngine, kept: KeptSums | None = None) -> None:
        self._engine = engine
        self._kept = kept or KeptSums()
        self._connection: AsyncConnection | None = None

    @asynccontextmanager
    async def at_one_moment(self) -> AsyncGenerator[Self]:
        async with self._reading() as connection:
            there = copy(self)
            there._connection = connection
            yield there

    @asynccontextmanager
    async def _reading(self) -> AsyncGenerator[AsyncConnection]:
        if self._connection is not None:
            yield self._connection
        else:
            async with at_one_moment(self._engine) as connection:
                yield connection

    async def await_corrections(self, before_us: int) -> None:
        if self._engine.dialect.name == "sqlite":
            # Writers take turns, and date corrections in their turn: none can follow on a request that is newer.
            async with self._engine.connect() as connection:
                newest = (await connection.execute(select(func.max(entries.c.accepted_at_us)))).scalar()
            if newest is not None and newest >= before_us:
                return
        async with writing(self._engine) as connection:
            await lock(connection, CORRECTIONS_LOCK)

    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        [found] = await self.sums_together([query])
        return found

    async def sums_together(self, queries: Sequence[SumsQuery]) -> Sequence[Sequence[Sums]]:
        whole = _all_of(queries)
        calendar = Calendar(whole.time_zone, whole.by)
        groups = Groups(queries, calendar)
        async with self._reading() as connection:
            if is_by_end_user(whole):
                await refuse_too_many_end_users(connection, queries)
                await add_requests(connection, groups, whole)
                return await asyncio.to_thread(groups.ordered)
            first_us, last_us = await first_and_last_us(connection) or (0, 0)
            booked_us = (first_us, last_us + DAY_US)  # all of the last day
            await refuse_too_many(connection, queries, booked_us)
            cuts = cut_hours(whole.since_us, whole.until_us, calendar, booked_us)
            gone = await self._without_entries(connection, cuts)
            split = [cut for cut in cuts if cut.hour not in gone]
            # An hour without entries belongs to the period in which it begins.
            outside = {hour for hour in gone if not whole.since_us <= hour * HOUR_US < whole.until_us}
            skipped = outside.union(cut.hour for cut in split)
            rollups = [half for span in spans(whole, skipped=skipped) for half in span.halves(last_us - 1)]
            by_row = await self._add_by_column(connection, groups, whole, rollups, booked_us)
            for span in [*later_corrections(whole, skipped=skipped), *by_row]:
                async for row in self._rows(rollup_sums, connection, whole, span):
                    groups.add(span.at_us(row), row)
            for cut in split:
                async for row in cut_sums(connection, whole, cut):
                    groups.add(cut.since_us, row)
                async for at_us, row in moved_in(connection, whole, cut):
                    groups.add(at_us, row)
            if timed := [one for one in queries if one.with_latencies]:
                booked = [span.within(*booked_us) for span in rollups]
                await self._add_latencies(connection, groups, _all_of(timed), booked, split)
        # Not on the event loop, which serves requests: there may be tens of thousands of groups.
        return await asyncio.to_thread(groups.ordered)

    async def _add_by_column(
        self,
        connection: AsyncConnection,
        groups: Groups,
        whole: SumsQuery,
        rollups: Sequence[Span],
        booked_us: tuple[int, int],
    ) -> Sequence[Span]:
        """Adds the sums of all spans but those whose rows the database should sum: they are returned."""
        if set(TIMES) & set(whole.by):
            parts = [span.within(*booked_us) for span in rollups]
            return [one for part in parts async for one in self._add_timed(connection, groups, whole, part)]
        if (columns := await self._by_dimension(connection, whole, rollups)) is None:
            return rollups
        await asyncio.to_thread(groups.add_columns, *columns)
        return ()

    async def _add_latencies(
        self,
        connection: AsyncConnection,
        groups: Groups,
        timed: SumsQuery,
        booked: Sequence[Span],
        split: Sequence[Cut],
    ) -> None:
        for span in booked:
            async for row in self._rows(rollup_sketches, connection, timed, span):
                groups.add_sketches(span.at_us(row), row)
        for cut in split:
            async for row in cut_sketches(connection, timed, cut):
                groups.add_sketches(cut.since_us, row)

    async def _by_dimension(
        self, connection: AsyncConnection, whole: SumsQuery, rollups: Sequence[Span]
    ) -> tuple[SpanSums, Known] | None:
        """The sums of all spans and their dimensions; None if the database should do the summing: for a single group,
        and for too many dimensions or too large sums."""
        if not whole.by or not rollups:
            return None
        newest = select(dimensions.c.digest).order_by(dimensions.c.id.desc()).limit(1).scalar_subquery()
        marks = (await connection.execute(select(func.count(), newest).select_from(dimensions))).one()
        if marks[0] > MOST_DIMENSIONS:
            return None
        wanted, names = conditions(whole), names_of(whole)
        found: list[SpanSums] = []
        try:
            for one in rollups:
                read = partial(sums_by_dimension, connection, whole, one, names)
                found.append(await (read() if wanted else self._kept.columns(connection, one, names, read)))
        except TooLarge:
            return None
        read_known = partial(known_dimensions, connection, whole.by, wanted)
        known = await (read_known() if wanted else self._kept.known(whole.by, (tuple(marks),), read_known))
        return joined(found), known

    async def _add_timed(
        self, connection: AsyncConnection, groups: Groups, whole: SumsQuery, span: Span
    ) -> AsyncIterator[Span]:
        """Adds the sums of a span to groups by time. Yields the parts whose sums are too large."""
        names, rows = names_of(whole), await filtered_rows(connection, whole, span)
        asked = (tuple(sorted(whole.filters.items())), *columns_of(whole), UNITS[span.unit_us] in whole.by, names)
        async for part in timed_parts(connection, whole, span, groups.calendar):
            read = partial(timed_sums, connection, whole, part, names, rows)
            try:
                found = await self._kept.columns(connection, part, asked, read, rows)
            except TooLarge:
                yield part
            else:
                named = with_times(found, whole, lambda name, at: groups.calendar.label(name, at * span.unit_us))
                await asyncio.to_thread(groups.add_columns, *named)

    async def _rows(
        self, read: Reading, connection: AsyncConnection, query: SumsQuery, span: Span
    ) -> AsyncIterator[Totals]:
        rows = await filtered_rows(connection, query, span)
        asked = (read, query.by, tuple(sorted(query.filters.items())), query.money_alone)
        async for row in self._kept.rows(connection, span, asked, partial(read, connection, query, span, rows), rows):
            yield row

    async def hourly_traffic(self, since_us: int, until_us: int, *, on_gpus: bool = False) -> Sequence[HourlyTraffic]:
        async with self._reading() as connection:
            return await hourly_traffic(connection, self._kept, since_us, until_us, on_gpus=on_gpus)

    async def key_names(self, key_ids: Collection[str]) -> Mapping[str, str]:
        found: dict[str, str] = {}
        wanted = sorted(key_ids)
        async with self._reading() as connection:
            for start in range(0, len(wanted), KEYS_AT_ONCE):
                some = api_keys.c.id.in_(wanted[start : start + KEYS_AT_ONCE])
                rows = await connection.execute(select(api_keys.c.id, api_keys.c.name).where(some))
                found.update((row.id, row.name) for row in rows)
        return found

    async def first_and_last_us(self) -> tuple[int, int] | None:
        async with self._reading() as connection:
            return await first_and_last_us(connection)

    @staticmethod
    async def _without_entries(connection: AsyncConnection, cuts: Iterable[Cut]) -> set[int]:
        """Hours whose requests were deleted or never existed: they count as a whole where they begin."""
        gone: set[int] = set()
        booked_from: int | None = 0
        for cut in cuts:
            if booked_from is None or cut.hour < booked_from:
                gone.add(cut.hour)
                continue
            inside = entries.c.accepted_at_us.between(cut.hour * HOUR_US, (cut.hour + 1) * HOUR_US - 1)
            if (await connection.execute(select(entries.c.accepted_at_us).where(inside).limit(1))).scalar() is None:
                gone.add(cut.hour)
                later = select(func.min(hourly.c.hour)).where(hourly.c.hour >= cut.hour)
                booked_from = (await connection.execute(later)).scalar()
        return gone


async def first_and_last_us(connection: AsyncConnection) -> tuple[int, int] | None:
    # In two subqueries: for both in one query SQLite would read the whole index instead of its ends.
    first, last = (select(end(hourly.c.hour)).scalar_subquery() for end in (func.min, func.max))
    begin, end = (await connection.execute(select(first, last))).one()
    return None if begin is None else (begin * HOUR_US, (end + 1) * HOUR_US)


def _all_of(queries: Sequence[SumsQuery]) -> SumsQuery:
    """One query that groups by everything that any of these does; their periods and filters are equal."""
    first, *others = queries
    shared = attrgetter("since_us", "until_us", "filters", "time_zone", "as_of_us")
    assert all(shared(one) == shared(first) for one in others)
    by = tuple(dict.fromkeys(name for one in queries for name in one.by))
    return replace(first, by=by, money_alone=all(one.money_alone for one in queries))
