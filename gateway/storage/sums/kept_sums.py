"""A bounded cache of sums over days and hours, valid as long as nothing has been added to these."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import ColumnElement, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.storage.sums.by_dimension import Known, SpanSums
from gateway.storage.sums.by_time import TimedSums
from gateway.storage.sums.corrections import Totals
from gateway.storage.sums.filtered_rows import RowsOf
from gateway.storage.sums.spans import Span
from gateway.storage.tables.books import daily, hourly

MOST_BYTES: Final = 64 << 20
"""Per process. 15,000 dimensions, as of 5,000 keys, take 2 MB for each period."""
LEAST: Final = 4
"""Minimum number of days or hours: for fewer, reading the sums is as fast as validating the cache."""
MOST_ROWS: Final = 2000
ROW_BYTES: Final = 4096
LOW: Final = (1 << 32) - 1
Key = tuple[Any, ...]
S = TypeVar("S", SpanSums, TimedSums)
Marks = tuple[tuple[Any, ...], ...]


class _Kept(NamedTuple):
    marks: Marks
    found: Any
    size: int


class KeptSums:
    """Evicts the least recently used. A connection must read one snapshot: marks are read once for it."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._read: WeakKeyDictionary[AsyncConnection, list[tuple[Span, Marks]]] = WeakKeyDictionary()

    async def columns(
        self,
        connection: AsyncConnection,
        span: Span,
        asked: Key,
        read: Callable[[], Awaitable[S]],
        of: RowsOf = Span.conditions,
    ) -> S:
        """The cached sums, or those read now."""
        if not _is_worth_it(span):
            return await read()
        key, marks = _key(span, asked), await self._marks(connection, span, of)
        if (kept := self._find(key, marks)) is not None:
            return kept
        found = await read()
        self._keep(key, _Kept(marks, found, found.size))
        return found

    async def known(self, by: Sequence[str], marks: Marks, read: Callable[[], Awaitable[Known]]) -> Known:
        """The dimensions for these groups, cached or read now. They are never changed: `marks` is how many there are,
        and the newest."""
        if (kept := self._find(("dimensions", *by), marks)) is not None:
            return kept
        found = await read()
        self._keep(("dimensions", *by), _Kept(marks, found, found.size))
        return found

    async def rows(
        self,
        connection: AsyncConnection,
        span: Span,
        asked: Key,
        read: Callable[[], AsyncIterator[Totals]],
        of: RowsOf = Span.conditions,
    ) -> AsyncIterator[Totals]:
        """Like `columns`, for rows computed from the rollup's rows `of`; more than MOST_ROWS are not cached."""
        if not _is_worth_it(span):
            async for row in read():
                yield row
            return
        key, marks = _key(span, asked), await self._marks(connection, span, of)
        kept: Sequence[Totals] | None = self._find(key, marks)
        if kept is not None:
            for row in kept:
                yield row
            return
        found: list[Totals] = []
        async for row in read():
            yield row
            if len(found) <= MOST_ROWS:
                found.append(row)
        if len(found) <= MOST_ROWS:
            sketches = sum(
                len(value) for row in found for value in row.values() if isinstance(value, bytes | bytearray)
            )
            self._keep(key, _Kept(marks, found, len(found) * ROW_BYTES + sketches))

    async def _marks(self, connection: AsyncConnection, span: Span, rows: RowsOf) -> Marks:
        """Those of an unfiltered span that contains this one, if they were read: a report asks for the same days up to
        three times, and reading their marks is most of what it takes once its sums are kept."""
        if rows is not Span.conditions:
            return await _marks(connection, span, rows)
        read = self._read.setdefault(connection, [])
        for whole, marks in read:
            if whole.contains(span):
                return tuple(one for one in marks if span.first <= one[0] < span.end and one[0] not in span.skipped)
        marks = await _marks(connection, span, rows)
        read.append((span, marks))
        return marks

    def _find(self, key: Key, marks: Marks) -> Any:
        kept = self._kept.get(key)
        if kept is None or kept.marks != marks:
            return None
        self._kept.move_to_end(key)
        return kept.found

    def _keep(self, key: Key, one: _Kept) -> None:
        self._kept[key] = one
        self._kept.move_to_end(key)
        while sum(kept.size for kept in self._kept.values()) > self._most_bytes:
            self._kept.popitem(last=False)


def _is_worth_it(span: Span) -> bool:
    return span.table in (daily, hourly) and span.end - span.first >= LEAST


def _key(span: Span, asked: Key) -> Key:
    return (span.table.name, span.first, span.end, span.skipped, *asked)


async def _marks(connection: AsyncConnection, span: Span, rows: RowsOf) -> Marks:
    """For each day or hour, figures that every write changes, since requests and corrections are only added. They
    include durations, in case the database was replaced by another. Must be read before the sums: additions in between
    then merely invalidate the entry early."""
    unit, of = span.table.columns[0], span.table.c
    figures: list[ColumnElement[Any]] = [of.requests, of.adjusted_requests, of.total_us.op("&")(literal(LOW))]
    if rows is not Span.conditions:  # a filter may leave out the request whose attempt was paid here
        figures.append(of.other_pico_usd.op("&")(literal(LOW)))
    query = select(unit, func.count(), *map(func.sum, figures)).where(*rows(span))
    return tuple(tuple(row) for row in await connection.execute(query.group_by(unit).order_by(unit)))
