"""Sums of days and hours that were read before, for as long as these say that nothing was added to them. Bounded."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.storage.sums.by_dimension import SpanSums
from gateway.storage.sums.corrections import Totals
from gateway.storage.sums.sum_rows import Span
from gateway.storage.tables.books import daily, hourly

MOST_BYTES: Final = 64 << 20
"""Of a process: 15,000 dimensions, as 5,000 keys have, are 4 MB for each period that is looked at."""
LEAST: Final = 4
"""Days or hours: of fewer the sums are read as quickly as what they are known by."""
MOST_ROWS: Final = 2000
ROW_BYTES: Final = 4096
LOW: Final = (1 << 32) - 1
Key = tuple[Any, ...]
Marks = tuple[tuple[Any, ...], ...]


class _Kept(NamedTuple):
    marks: Marks
    found: Any
    size: int


class KeptSums:
    """What was used last is kept."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()

    async def columns(
        self, connection: AsyncConnection, span: Span, asked: Key, read: Callable[[], Awaitable[SpanSums]]
    ) -> SpanSums:
        """As kept, or as read now."""
        if not _is_worth_it(span):
            return await read()
        key, marks = _key(span, asked), await _marks(connection, span)
        if (kept := self._find(key, marks)) is not None:
            return kept
        found = await read()
        self._keep(key, _Kept(marks, found, found.size))
        return found

    async def rows(
        self, connection: AsyncConnection, span: Span, asked: Key, read: Callable[[], AsyncIterator[Totals]]
    ) -> AsyncIterator[Totals]:
        """The same of rows; more than MOST_ROWS are not kept."""
        if not _is_worth_it(span):
            async for row in read():
                yield row
            return
        key, marks = _key(span, asked), await _marks(connection, span)
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


async def _marks(connection: AsyncConnection, span: Span) -> Marks:
    """Of each day or hour what no writer leaves as it is: requests and corrections are only ever added. With their
    times, should another database have come in place of this one. To be asked before the sums: what is added in between
    then only makes them old sooner."""
    unit, of = span.table.columns[0], span.table.c
    figures: list[ColumnElement[Any]] = [of.requests, of.adjusted_requests, of.total_us.op("&")(literal(LOW))]
    query = select(unit, func.count(), *map(func.sum, figures)).where(unit >= span.first, unit < span.end)
    return tuple(tuple(row) for row in await connection.execute(query.group_by(unit).order_by(unit)))
