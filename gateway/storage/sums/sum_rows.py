"""Sums and sketches as the database adds them up: rows of the rollups, and of the requests of a part of an hour.

What groups reports make of them is sql/reports.py's.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, LargeBinary, Select, Subquery, Table, case, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.instants import HOUR_US
from gateway.storage.sums.corrections import Totals, taken_back
from gateway.storage.sums.cut_hours import requests_of
from gateway.storage.sums.filters import COLUMNS, conditions
from gateway.storage.sums.periods import Cut
from gateway.storage.sums.rollup import DAY_HOURS, SKETCHES, SUMS
from gateway.storage.sums.sketch import grow, sketch
from gateway.storage.tables import daily, dimensions, hourly
from gateway.sums import TIMES, SumsQuery

Key = tuple[Any, ...]
V = TypeVar("V")
ROWS_AT_ONCE = 250
SKETCH_HOURS = 14 * DAY_HOURS
"""Joined at once by PostgreSQL: of longer, and of many dimensions, it would be hundreds of megabytes."""
BY_STATUS: dict[str, Any] = {
    "successful_requests": dimensions.c.status == "completed",
    "aborted_requests": dimensions.c.status.in_(("cancelled", "partial")),
    "simulated_requests": dimensions.c.is_simulated,
}


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of one rollup table, or of what looks like one: [first, end) but for `skipped`."""

    table: Table | Subquery
    unit_us: int
    first: int
    end: int
    skipped: frozenset[int] = frozenset()

    def within(self, first_us: int, end_us: int) -> "Span":
        """The part that holds these times."""
        end = min(self.end, -(-end_us // self.unit_us))
        return replace(self, first=max(self.first, first_us // self.unit_us), end=end)

    def steps(self) -> Iterator["Span"]:
        """Parts of SKETCH_HOURS at most."""
        step = SKETCH_HOURS * HOUR_US // self.unit_us
        for first in range(self.first, self.end, step):
            yield replace(self, first=first, end=min(first + step, self.end))


def spans(query: SumsQuery, *, skipped: Set[int]) -> list[Span]:
    """The period's hours: whole UTC days from the daily sums, unless the answer needs the hours themselves."""
    first, end = query.since_us // HOUR_US, -(-query.until_us // HOUR_US)
    needs_hours = "hour" in query.by or (set(TIMES) & set(query.by) and query.time_zone != "UTC")
    first_day, end_day = -(-first // DAY_HOURS), end // DAY_HOURS
    if needs_hours or first_day >= end_day:
        return [Span(hourly, HOUR_US, first, end, frozenset(skipped))]
    # A day with a skipped hour is taken hour by hour.
    broken = frozenset(hour // DAY_HOURS for hour in skipped if first_day <= hour // DAY_HOURS < end_day)
    found = [Span(daily, HOUR_US * DAY_HOURS, first_day, end_day, broken)]
    edges = [(first, first_day * DAY_HOURS), (end_day * DAY_HOURS, end)]
    edges += [(day * DAY_HOURS, (day + 1) * DAY_HOURS) for day in sorted(broken)]
    return found + [Span(hourly, HOUR_US, start, stop, frozenset(skipped)) for start, stop in edges if start < stop]


def later_corrections(query: SumsQuery, *, skipped: Set[int]) -> list[Span]:
    """The same hours, where some corrections of them were booked too late to count."""
    if query.as_of_us is None:
        return []
    first, end = query.since_us // HOUR_US, -(-query.until_us // HOUR_US)
    return [Span(taken_back(query.as_of_us), HOUR_US, first, end, frozenset(skipped))]


async def rollup_sums(connection: AsyncConnection, query: SumsQuery, span: Span) -> AsyncIterator[Totals]:
    """By the columns of the groups, and by hour or day, as `at`, where a time is asked for."""
    async for totals in _summed(connection, span.table, _keys(query, span), _wanted(query, span)):
        yield totals


async def rollup_sketches(connection: AsyncConnection, query: SumsQuery, span: Span) -> AsyncIterator[Totals]:
    """The same of the sketches, a key's joined or in several rows: there are far more rows than keys."""
    keys = _keys(query, span)
    source = span.table.join(dimensions, dimensions.c.id == span.table.c.dimension_id)
    sketches = [span.table.c[name] for name in SKETCHES]
    if connection.dialect.name != "postgresql":
        found = select(*keys, *sketches).select_from(source).where(*_wanted(query, span))
        async for row in _merged(keys, _rows(connection, found)):
            yield row
        return
    nothing = literal(b"", LargeBinary)
    joined = [func.string_agg(one, nothing).label(one.name) for one in sketches]
    for step in span.steps():
        found = select(*keys, *joined).select_from(source).where(*_wanted(query, step)).group_by(*keys)
        async for *key, first, decode in _rows(connection, found):
            yield _of_key(keys, key, (first, decode))


async def cut_sums(connection: AsyncConnection, query: SumsQuery, cut: Cut) -> AsyncIterator[Totals]:
    """Of the requests of a part of an hour."""
    async for totals in _summed(connection, requests_of(cut), _keys(query), conditions(query)):
        yield totals


async def cut_sketches(connection: AsyncConnection, query: SumsQuery, cut: Cut) -> AsyncIterator[Totals]:
    table, keys = requests_of(cut), _keys(query)
    source = table.join(dimensions, dimensions.c.id == table.c.dimension_id)
    figures = (table.c.time_to_first_token_us, table.c.decode_tokens_per_second)
    values: dict[Key, tuple[list[float], list[float]]] = {}
    found = select(*keys, *figures).select_from(source).where(*conditions(query))
    async for *key, first_us, speed in _rows(connection, found):
        firsts, speeds = values.setdefault(tuple(key), ([], []))
        firsts += [] if first_us is None else [first_us / 1e6]
        speeds += [] if speed is None else [speed]
    async for key, lists in _in_turns(values):
        yield _of_key(keys, key, list(map(sketch, lists)))


def _keys(query: SumsQuery, span: Span | None = None) -> list[ColumnElement[Any]]:
    """The columns of the groups; of a span its hour or day, where a time is asked for."""
    columns = dict.fromkeys(COLUMNS[name] for name in query.by if name not in TIMES)
    found: list[ColumnElement[Any]] = [dimensions.c[name] for name in columns]
    if span is not None and any(name in TIMES for name in query.by):
        # First: SQLite sorts what it groups, and the rows are in the order of their times.
        found.insert(0, span.table.columns[0].label("at"))
    return found


def _wanted(query: SumsQuery, span: Span) -> list[Any]:
    unit = span.table.columns[0]
    wanted: list[Any] = [unit >= span.first, unit < span.end, *conditions(query)]
    if span.skipped:
        wanted.append(unit.not_in(sorted(span.skipped)))
    return wanted


async def _summed(
    connection: AsyncConnection,
    table: Table | Subquery,
    keys: Sequence[ColumnElement[Any]],
    wanted: Sequence[ColumnElement[Any]],
) -> AsyncIterator[Totals]:
    sums = [part for name in SUMS for part in _exact_sum(connection, table.c[name])]
    sums += [func.sum(case((test, table.c.requests), else_=0)).label(name) for name, test in BY_STATUS.items()]
    source = table.join(dimensions, dimensions.c.id == table.c.dimension_id)
    names = [column.name for column in (*keys, *sums)]
    async for row in _rows(connection, select(*keys, *sums).select_from(source).where(*wanted).group_by(*keys)):
        totals = dict(zip(names, row, strict=True))
        if totals["requests"] is not None:
            yield _joined(totals)


async def _rows(connection: AsyncConnection, query: Select[Any]) -> AsyncIterator[tuple[Any, ...]]:
    """What it finds, fetched a little at a time: requests pass on this loop in between."""
    async with connection.stream(query) as result:
        async for some in result.partitions(ROWS_AT_ONCE):
            for row in some:
                yield tuple(row)


async def _merged(keys: Sequence[ColumnElement[Any]], rows: AsyncIterator[tuple[Any, ...]]) -> AsyncIterator[Totals]:
    """Rows of a key and its sketches, one for each key."""
    parts: dict[Key, tuple[bytearray, bytearray]] = {}
    async for *key, first, decode in rows:
        firsts, decodes = parts.setdefault(tuple(key), (bytearray(), bytearray()))
        grow(firsts, first)
        grow(decodes, decode)
    async for key, sketches in _in_turns(parts):
        yield _of_key(keys, key, sketches)


async def _in_turns(many: Mapping[Key, V]) -> AsyncIterator[tuple[Key, V]]:
    for place, item in enumerate(many.items(), 1):
        yield item
        if place % ROWS_AT_ONCE == 0:
            await asyncio.sleep(0)


def _of_key(keys: Sequence[ColumnElement[Any]], values: Sequence[Any], sketches: Sequence[Any]) -> Totals:
    return {
        **dict(zip([key.name for key in keys], values, strict=True)),
        **dict(zip(SKETCHES, sketches, strict=True)),
    }


def _exact_sum(connection: AsyncConnection, column: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    """PostgreSQL adds 64-bit integers exactly. SQLite's sum fails beyond 64 bits: money is summed in two halves."""
    name = str(column.key)
    if connection.dialect.name != "sqlite" or not name.endswith("_pico_usd"):
        return [func.sum(column).label(name)]
    high, low = column.op(">>")(32), column.op("&")(0xFFFFFFFF)
    return [func.sum(high).label(f"{name}:high"), func.sum(low).label(name)]


def _joined(row: Totals) -> Totals:
    joined = dict(row)
    for name in SUMS:
        high = joined.pop(f"{name}:high", 0)
        joined[name] = (int(high) << 32) + int(joined[name])
    return joined
