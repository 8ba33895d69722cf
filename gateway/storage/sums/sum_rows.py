"""Sums and sketches added up by the database, from rollups and from the requests of partial hours.

groups.py makes groups of them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, LargeBinary, Select, Subquery, Table, case, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.storage.sums.corrections import Totals
from gateway.storage.sums.cut_hours import requests_of
from gateway.storage.sums.filtered_rows import RowsOf
from gateway.storage.sums.filters import COLUMNS, conditions
from gateway.storage.sums.joined_sketches import grow
from gateway.storage.sums.periods import Cut
from gateway.storage.sums.rollup import DAY_HOURS, SKETCHES, SUMS
from gateway.storage.sums.sketch import sketch
from gateway.storage.sums.spans import Span
from gateway.storage.tables.books import dimensions
from gateway.storage.tables.columns import PAID_COLUMNS
from gateway.sums import TIMES, SumsQuery

Key = tuple[Any, ...]
V = TypeVar("V")
ROWS_AT_ONCE = 250
SKETCH_HOURS = 14 * DAY_HOURS
"""How many hours of sketches PostgreSQL joins at once: for more, with many dimensions, it would be hundreds of
megabytes. SQLite joins a day at a time, since it needs twice the length, in this process' memory."""
MONEY = (
    *("requests", "unpriced_requests", "priced_later_requests"),
    *PAID_COLUMNS,
    "adjustment_pico_usd",
    "upper_pico_usd",
)
"""The columns that make up a cost, and what budgets count of one that is not known."""
STATUSES = {"successful_requests": ("completed",), "aborted_requests": ("cancelled", "partial")}
BY_STATUS: dict[str, ColumnElement[bool]] = {
    **{name: dimensions.c.status.in_(statuses) for name, statuses in STATUSES.items()},
    "simulated_requests": dimensions.c.is_simulated,
}


def names_of(query: SumsQuery) -> tuple[str, ...]:
    """Those of SUMS that the query needs."""
    return MONEY if query.money_alone else SUMS


async def rollup_sums(connection: AsyncConnection, query: SumsQuery, span: Span, rows: RowsOf) -> AsyncIterator[Totals]:
    """Sums by the groups' columns and, if a time dimension is requested, by hour or day (`at`)."""
    async for totals in _summed(connection, query, span.table, _keys(query, span), rows(span)):
        yield totals


async def rollup_sketches(
    connection: AsyncConnection, query: SumsQuery, span: Span, rows: RowsOf
) -> AsyncIterator[Totals]:
    """Like `rollup_sums`, for sketches. A group's sketches are joined by the database, since there are far more rows
    than groups."""
    keys = _keys(query, span)
    source = span.table.join(dimensions, dimensions.c.id == span.table.c.dimension_id)
    sketches, is_sqlite = [span.table.c[name] for name in SKETCHES], connection.dialect.name == "sqlite"
    joined = [(_joined_hex if is_sqlite else _joined_bytes)(one).label(one.name) for one in sketches]

    async def parts() -> AsyncIterator[tuple[Any, ...]]:
        first: int | None = span.first
        while first is not None and first < span.end:
            step, is_empty = span.part(first, DAY_HOURS if is_sqlite else SKETCH_HOURS), True
            found = select(*keys, *joined).select_from(source).where(*rows(step)).group_by(*keys)
            async for row in rows_of(connection, found):
                is_empty = False
                yield row
            # Skip gaps: if a clock was once unset, the books begin in 1970, followed by decades of nothing.
            first = await first_booked(connection, span, step.end) if is_empty else step.end

    async for row in _merged(keys, parts(), bytes.fromhex if is_sqlite else bytes):
        yield row


async def first_booked(connection: AsyncConnection, span: Span, first: int) -> int | None:
    """The first hour or day from `first` on that has a row."""
    unit = span.table.columns[0]
    return (await connection.execute(select(func.min(unit)).where(unit >= first, unit < span.end))).scalar()


def _joined_bytes(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return func.string_agg(column, literal(b"", LargeBinary))


def _joined_hex(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """SQLite can only join texts."""
    return func.group_concat(func.hex(column), "")


async def cut_sums(connection: AsyncConnection, query: SumsQuery, cut: Cut) -> AsyncIterator[Totals]:
    """Sums of the requests within a cut."""
    table = requests_of(cut, query)
    async for totals in _summed(connection, query, table, _keys(query, requests=table), conditions(query)):
        yield totals


async def cut_sketches(connection: AsyncConnection, query: SumsQuery, cut: Cut) -> AsyncIterator[Totals]:
    table = requests_of(cut, query)
    keys = _keys(query, requests=table)
    source = table.join(dimensions, dimensions.c.id == table.c.dimension_id)
    figures = (table.c.time_to_first_token_us, table.c.decode_tokens_per_second)
    values: dict[Key, tuple[list[float], list[float]]] = {}
    found = select(*keys, *figures).select_from(source).where(*conditions(query))
    async for *key, first_us, speed in rows_of(connection, found):
        firsts, speeds = values.setdefault(tuple(key), ([], []))
        firsts += [] if first_us is None else [first_us / 1e6]
        speeds += [] if speed is None else [speed]
    async for key, lists in _in_turns(values):
        yield _of_key(keys, key, list(map(sketch, lists)))


def _keys(query: SumsQuery, span: Span | None = None, *, requests: Subquery | None = None) -> list[ColumnElement[Any]]:
    """The groups' columns; for a span also its hour or day, if a time dimension is requested."""
    columns = dict.fromkeys(COLUMNS[name] for name in query.by if name not in TIMES)
    found = [column_of(name, requests) for name in columns]
    if span is not None and any(name in TIMES for name in query.by):
        # First, because SQLite groups by sorting, and the rows are already ordered by time.
        found.insert(0, span.table.columns[0].label("at"))
    return found


def column_of(name: str, requests: Subquery | None) -> ColumnElement[Any]:
    """A group's column: end users are with the requests, all others with their dimensions."""
    return requests.c.end_user if requests is not None and name == "end_user" else dimensions.c[name]


async def _summed(
    connection: AsyncConnection,
    query: SumsQuery,
    table: Table | Subquery,
    keys: Sequence[ColumnElement[Any]],
    wanted: Sequence[ColumnElement[Any]],
) -> AsyncIterator[Totals]:
    sums = [part for name in names_of(query) for part in _exact_sum(connection, table.c[name])]
    sums += [func.sum(case((test, table.c.requests), else_=0)).label(name) for name, test in BY_STATUS.items()]
    source = table.join(dimensions, dimensions.c.id == table.c.dimension_id)
    names = [column.name for column in (*keys, *sums)]
    async for row in rows_of(connection, select(*keys, *sums).select_from(source).where(*wanted).group_by(*keys)):
        totals = dict(zip(names, row, strict=True))
        if totals["requests"] is not None:
            yield _joined(totals, names_of(query))


async def parts_of(connection: AsyncConnection, query: Select[Any]) -> AsyncIterator[list[tuple[Any, ...]]]:
    """The query's rows, fetched in small parts, so that requests on this loop proceed in between."""
    async with connection.stream(query) as result:
        async for some in result.partitions(ROWS_AT_ONCE):
            yield [tuple(row) for row in some]


async def rows_of(connection: AsyncConnection, query: Select[Any]) -> AsyncIterator[tuple[Any, ...]]:
    async for some in parts_of(connection, query):
        for row in some:
            yield row


async def _merged(
    keys: Sequence[ColumnElement[Any]], rows: AsyncIterator[tuple[Any, ...]], decoded: Callable[[Any], bytes]
) -> AsyncIterator[Totals]:
    """Merges rows of a key and its sketches, so that each key occurs once and little is kept of it."""
    parts: dict[Key, tuple[bytearray, bytearray]] = {}
    async for *key, first, decode in rows:
        firsts, decodes = parts.setdefault(tuple(key), (bytearray(), bytearray()))
        grow(firsts, decoded(first) if first else b"")
        grow(decodes, decoded(decode) if decode else b"")
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
    """PostgreSQL adds 64-bit integers exactly. SQLite's sum fails beyond 64 bits, so money is summed in two halves."""
    name = str(column.key)
    if connection.dialect.name != "sqlite" or not name.endswith("_pico_usd"):
        return [func.sum(column).label(name)]
    high, low = column.op(">>")(32), column.op("&")(0xFFFFFFFF)
    return [func.sum(high).label(f"{name}:high"), func.sum(low).label(name)]


def _joined(row: Totals, names: Sequence[str]) -> Totals:
    joined = dict(row)
    for name in names:
        high = joined.pop(f"{name}:high", 0)
        joined[name] = (int(high) << 32) + int(joined[name])
    return joined
