"""Sums by any dimensions, from the hourly rollups; partial hours, cut by a period's ends or a local midnight, are
summed from the entries.

See gateway.stores.ReportStore. Sums are exact integers on both databases, even beyond 64 bits.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import fields, replace
from functools import partial
from operator import add, attrgetter, itemgetter
from typing import Self

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.economics.traffic import HourlyTraffic
from gateway.instants import DAY_US, HOUR_US
from gateway.storage.database import CORRECTIONS_LOCK, at_one_moment, lock, writing
from gateway.storage.sums.by_dimension import (
    Group,
    Known,
    SpanSums,
    TooLarge,
    grouped,
    joined,
    known_dimensions,
    sums_by_dimension,
)
from gateway.storage.sums.by_time import UNITS, columns_of, timed_parts, timed_sums, with_times
from gateway.storage.sums.cut_hours import Totals, moved_in
from gateway.storage.sums.filtered_rows import RowsOf, filtered_rows
from gateway.storage.sums.filters import COLUMNS, conditions
from gateway.storage.sums.group_count import refuse_too_many
from gateway.storage.sums.joined_sketches import grow, percentile
from gateway.storage.sums.kept_sums import KeptSums
from gateway.storage.sums.periods import Calendar, Cut, cut_hours
from gateway.storage.sums.rollup import SKETCHES, SUMS
from gateway.storage.sums.spans import Span, later_corrections, spans
from gateway.storage.sums.sum_rows import (
    BY_STATUS,
    cut_sketches,
    cut_sums,
    names_of,
    rollup_sketches,
    rollup_sums,
)
from gateway.storage.sums.traffic import hourly_traffic
from gateway.storage.tables.administration import api_keys
from gateway.storage.tables.books import dimensions, entries, hourly
from gateway.sums import TIMES, Latencies, Sums, SumsQuery, TooManyGroups

KEYS_AT_ONCE = 500
NUMBERS = (*SUMS, *BY_STATUS)
MOST_DIMENSIONS = 250_000
"""The most dimensions whose sums are loaded at once (66 MB). If tags create more, the database does the summing."""
Reading = Callable[[AsyncConnection, SumsQuery, Span, RowsOf], AsyncIterator[Totals]]
_fields = [one.name for one in fields(Sums)][1:-1]
assert sorted(_fields) == sorted(NUMBERS)
_as_fields = itemgetter(*map(NUMBERS.index, _fields))
"""Reorders a group's numbers from NUMBERS to the fields of Sums."""


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
        whole, timed = _all_of(queries), [one for one in queries if one.with_latencies]
        calendar = Calendar(whole.time_zone, whole.by)
        groups = [_Groups(query, calendar) for query in queries]
        async with self._reading() as connection:
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
            by_row = [*later_corrections(whole, skipped=skipped)]
            if set(TIMES) & set(whole.by):
                for span in rollups:
                    part = span.within(*booked_us)
                    by_row += [one async for one in self._add_timed(connection, groups, whole, part, calendar)]
            elif (columns := await self._by_dimension(connection, whole, rollups)) is None:
                by_row += rollups
            else:
                await asyncio.to_thread(_add_columns, groups, *columns)
            for span in by_row:
                async for row in self._rows(rollup_sums, connection, whole, span):
                    _add(groups, row["at"] * span.unit_us if "at" in row else None, row)
            for span in rollups if timed else ():
                part = span.within(*booked_us)
                async for row in self._rows(rollup_sketches, connection, _all_of(timed), part):
                    _add_sketches(groups, row["at"] * span.unit_us if "at" in row else None, row)
            for cut in split:
                async for row in cut_sums(connection, whole, cut):
                    _add(groups, cut.since_us, row)
                if timed:
                    async for row in cut_sketches(connection, _all_of(timed), cut):
                        _add_sketches(groups, cut.since_us, row)
                for at_us, row in await moved_in(connection, whole, cut):
                    _add(groups, at_us, row)
        # Not on the event loop, which serves requests: there may be tens of thousands of groups.
        return await asyncio.to_thread(lambda: [one.ordered() for one in groups])

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
        self, connection: AsyncConnection, groups: Sequence["_Groups"], whole: SumsQuery, span: Span, calendar: Calendar
    ) -> AsyncIterator[Span]:
        """Adds the sums of a span to groups by time. Yields the parts whose sums are too large."""
        names, rows = names_of(whole), await filtered_rows(connection, whole, span)
        asked = (tuple(sorted(whole.filters.items())), *columns_of(whole), UNITS[span.unit_us] in whole.by, names)
        async for part in timed_parts(connection, whole, span, calendar):
            read = partial(timed_sums, connection, whole, part, names, rows)
            try:
                found = await self._kept.columns(connection, part, asked, read, rows)
            except TooLarge:
                yield part
            else:
                named = with_times(found, whole, lambda name, at: calendar.label(name, at * span.unit_us))
                await asyncio.to_thread(_add_columns, groups, *named)

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


class _Groups:
    """The groups of one query, as they accumulate."""

    def __init__(self, query: SumsQuery, calendar: Calendar) -> None:
        self.query = query
        self._calendar = calendar
        self._sums: dict[Group, list[int]] = {}
        self._sketches: dict[Group, tuple[bytearray, ...]] = {}

    def add(self, at_us: int | None, row: Totals, numbers: Sequence[int]) -> None:
        """`numbers` are those of `row`, in the order of NUMBERS."""
        for values in self._groups_of(at_us, row):
            self._add_to(values, numbers)
        self._refuse_too_many()

    def add_columns(self, sums: SpanSums, known: Known) -> None:
        for values, numbers in grouped(sums, known, self.query.by, NUMBERS):
            self._add_to(values, numbers)
        self._refuse_too_many()

    def _add_to(self, values: Group, numbers: Sequence[int]) -> None:
        present = self._sums.get(values)
        self._sums[values] = list(numbers) if present is None else list(map(add, present, numbers))

    def _refuse_too_many(self) -> None:
        if self.query.most_groups is not None and len(self._sums) > self.query.most_groups:
            raise TooManyGroups

    def add_sketches(self, at_us: int | None, row: Totals) -> None:
        for values in self._groups_of(at_us, row):
            kept = self._sketches.setdefault(values, (bytearray(), bytearray()))
            for whole, name in zip(kept, SKETCHES, strict=True):
                grow(whole, row[name] or b"")

    def _groups_of(self, at_us: int | None, row: Totals) -> list[Group]:
        """The row's group, or one per tag."""
        found: list[Group] = [()]
        for name in self.query.by:
            if name in TIMES:
                values: list[str | None] = [self._calendar.label(name, at_us or 0)]
            elif name == "tag":
                values = list(json.loads(row["tags"])) or [None]
            elif name == "is_simulated":
                values = ["true" if row["is_simulated"] else "false"]
            else:
                values = [row[COLUMNS[name]]]
            found = [(*group, value) for group in found for value in values]
        return found

    def ordered(self) -> list[Sums]:
        """Sorted by the groups' values."""
        has_none = any(None in values for values in self._sums)
        return [self._one(values) for values in sorted(self._sums, key=_none_first if has_none else None)]

    def _one(self, values: Group) -> Sums:
        latencies = self._latencies(values) if self.query.with_latencies else None
        return Sums(dict(zip(self.query.by, values, strict=True)), *_as_fields(self._sums[values]), latencies=latencies)

    def _latencies(self, values: Group) -> Latencies:
        first, decode = map(bytes, self._sketches.get(values, (b"", b"")))
        return Latencies(
            percentile(first, 0.5),
            percentile(first, 0.95),
            percentile(first, 0.99),
            percentile(decode, 0.5),
            percentile(decode, 0.05),
        )


def _none_first(values: Group) -> tuple[tuple[bool, str], ...]:
    return tuple((value is not None, value or "") for value in values)


def _all_of(queries: Sequence[SumsQuery]) -> SumsQuery:
    """One query that groups by everything that any of these does; their periods and filters are equal."""
    first, *others = queries
    shared = attrgetter("since_us", "until_us", "filters", "time_zone", "as_of_us")
    assert all(shared(one) == shared(first) for one in others)
    by = tuple(dict.fromkeys(name for one in queries for name in one.by))
    return replace(first, by=by, money_alone=all(one.money_alone for one in queries))


def _add(groups: Sequence[_Groups], at_us: int | None, row: Totals) -> None:
    numbers = [int(row.get(name) or 0) for name in NUMBERS]
    for one in groups:
        one.add(at_us, row, numbers)


def _add_columns(groups: Sequence[_Groups], sums: SpanSums, known: Known) -> None:
    for one in groups:
        one.add_columns(sums, known)


def _add_sketches(groups: Sequence[_Groups], at_us: int | None, row: Totals) -> None:
    for one in groups:
        if one.query.with_latencies:
            one.add_sketches(at_us, row)
