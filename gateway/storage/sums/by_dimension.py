"""Reads sums of a span by dimension as columns of integers, and adds them up to groups with numpy: for thousands of
keys, much faster than row by row. sql/reports.py decides when to use this.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import numpy as np
from sqlalchemy import BigInteger, ColumnElement, Select, case, cast, func, literal, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.storage.sums.filtered_rows import filtered_rows
from gateway.storage.sums.filters import COLUMNS
from gateway.storage.sums.spans import Span
from gateway.storage.sums.sum_rows import BY_STATUS, STATUSES, parts_of
from gateway.storage.tables.books import dimensions
from gateway.sums import Dimension, SumsQuery

Group = tuple[str | None, ...]
Numbered = tuple[Group, tuple[int, ...]]
HALF: Final = 32
LOW: Final = (1 << HALF) - 1
MOST: Final = (1 << 63) - 1
EXACT_UP_TO: Final = 1 << 30
"""If the sum of the upper halves is below this, the whole sum fits into 64 bits."""


class TooLarge(ArithmeticError):
    """A dimension's sum exceeds 64 bits."""


@dataclass(frozen=True, slots=True)
class SpanSums:
    """`figures` has an array for each of `names`, as long as `ids` and of the narrowest integers that hold it: most
    counts are small or zero, and what is kept has a bound."""

    names: tuple[str, ...]
    ids: Any
    figures: Sequence[Any]

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self.ids.nbytes + sum(one.nbytes for one in self.figures))


@dataclass(frozen=True, slots=True)
class Known:
    """Dimensions by ascending id: each of the `columns` is as long as `ids`. Columns of a time have its name."""

    ids: Any
    columns: Mapping[str, Sequence[Any]]

    @property
    def size(self) -> int:
        """Bytes, without the values: they are shared, as few differ."""
        return int(self.ids.nbytes) * (1 + len(self.columns))


async def sums_by_dimension(
    connection: AsyncConnection, query: SumsQuery, span: Span, names: Sequence[str]
) -> SpanSums:
    """Sums of the dimensions that meet the filters. Raises TooLarge."""
    of, rows = span.table.c.dimension_id, await filtered_rows(connection, query, span)
    sums = [sum_of(connection, span.table.c[name]).label(name) for name in names]
    _, whole = await read_figures(connection, select(of, *sums).where(*rows(span)).group_by(of))
    return SpanSums(tuple(names), whole[0], whole[1:])


def narrowed(figures: Iterable[Any]) -> list[Any]:
    """Each as an array of the narrowest integers."""
    return [one.astype(_narrowest(one)) for one in figures]


def _narrowest(figure: Any) -> Any:
    least, most = (figure.min(), figure.max()) if len(figure) else (0, 0)
    kinds = map(np.iinfo, (np.int8, np.int16, np.int32))
    return next((kind.dtype for kind in kinds if kind.min <= least and most <= kind.max), np.int64)


async def read_figures(
    connection: AsyncConnection, query: Select[Any], texts: int = 0
) -> tuple[list[list[Any]], list[Any]]:
    """The first `texts` columns of the rows as lists, in which equal values are the same object, and each other one as
    an array of integers. Raises TooLarge."""
    values: list[list[Any]] = [[] for _ in range(texts)]
    shared: dict[Any, Any] = {}
    parts: list[Any] = []
    try:
        async for some in parts_of(connection, query):
            columns = [*zip(*some, strict=True)]
            for kept, column in zip(values, columns, strict=False):
                kept.extend(map(shared.setdefault, column, column))
            parts.append(np.array(columns[texts:], np.int64))
    except TypeError as error:  # NULL: see sum_of
        raise TooLarge from error
    except DBAPIError as error:
        if "integer overflow" not in str(error.orig):
            raise
        raise TooLarge from error
    parts = parts or [np.empty((len(query.selected_columns) - texts, 0), np.int64)]
    # Not on the event loop: of 100,000 end users there may be 300,000 rows.
    return values, await asyncio.to_thread(_columns_of, parts)


def _columns_of(parts: Sequence[Any]) -> list[Any]:
    """Each column of all parts, narrowed before the next one is copied."""
    return narrowed(np.concatenate(columns) for columns in zip(*parts, strict=True))


def sum_of(connection: AsyncConnection, column: ColumnElement[Any]) -> ColumnElement[Any]:
    """SQLite's sum fails beyond 64 bits. PostgreSQL's is a numeric, sent as text unless cast; NULL if it does not
    fit."""
    total = func.sum(column)
    if connection.dialect.name == "sqlite":
        return total
    least, most = literal(-MOST, BigInteger), literal(MOST, BigInteger)
    return case((total.between(least, most), cast(total, BigInteger)))


async def known_dimensions(
    connection: AsyncConnection, by: Iterable[str], conditions: Sequence[ColumnElement[Any]]
) -> Known:
    """The dimensions that meet `conditions`, with the columns for these groups and for BY_STATUS."""
    names = list(dict.fromkeys([*(COLUMNS[name] for name in by), "status", "is_simulated"]))
    query = select(dimensions.c.id, *(dimensions.c[name] for name in names)).where(*conditions)
    found: list[list[Any]] = [[] for _ in range(len(names) + 1)]
    shared: dict[Any, Any] = {}
    async for some in parts_of(connection, query.order_by(dimensions.c.id)):
        ids, *columns = zip(*some, strict=True)
        found[0].extend(ids)
        for column, values in zip(found[1:], columns, strict=True):
            column.extend(map(shared.setdefault, values, values))
    return Known(np.array(found[0], np.int64), dict(zip(names, found[1:], strict=True)))


def joined(parts: Sequence[SpanSums]) -> SpanSums:
    """Concatenates the sums of several spans; a dimension may occur once per span."""
    ids, figures = np.concatenate([one.ids for one in parts]), zip(*(one.figures for one in parts), strict=True)
    return SpanSums(parts[0].names, ids, [np.concatenate(one) for one in figures])


def grouped(sums: SpanSums, known: Known, by: Sequence[Dimension], names: Sequence[str]) -> Iterator[Numbered]:
    """Each group with the figures of these names, including BY_STATUS; 0 for those not summed."""
    if not len(known.ids) or not len(sums.ids):
        return
    places = np.minimum(np.searchsorted(known.ids, sums.ids), len(known.ids) - 1)
    [inside] = np.nonzero(known.ids[places] == sums.ids)
    numbers, columns, codes = _codes(known, by, places[inside])
    if not len(codes):
        return
    columns = inside[columns]
    order = np.argsort(codes, kind="stable")
    columns, codes = columns[order], codes[order]
    [starts] = np.nonzero(np.diff(codes, prepend=-1))
    totals = [_added_up(figure, starts).tolist() for figure in _figures(sums, known, columns, places[columns], names)]
    groups = (numbers[code] for code in codes[starts].tolist())
    yield from zip(groups, zip(*totals, strict=True), strict=True)


def _figures(sums: SpanSums, known: Known, columns: Any, places: Any, names: Sequence[str]) -> Iterator[Any]:
    """The figures by `names`, one at a time: a copy of all of them would be as large as `sums`."""
    summed = dict(zip(sums.names, sums.figures, strict=True))
    for name in names:
        if name in summed:
            yield summed[name][columns].astype(np.int64)
        elif name in BY_STATUS:
            yield np.where(_counts(known, name)[places], summed["requests"][columns], 0).astype(np.int64)
        else:
            yield np.zeros(len(columns), np.int64)


def _added_up(figure: Any, starts: Any) -> Any:
    """Exact sums by group, computed in halves, since they may exceed 64 bits."""
    high, low = np.add.reduceat(figure >> HALF, starts), np.add.reduceat(figure & LOW, starts)
    high, low = high + (low >> HALF), low & LOW
    if np.abs(high).max() < EXACT_UP_TO:
        return (high << HALF) + low
    return (high.astype(object) << HALF) + low.astype(object)


def _codes(known: Known, by: Sequence[Dimension], places: Any) -> tuple[list[Group], Any, Any]:
    """(groups, indices into `places`, group numbers): which place, that of a dimension, is in which group. With tags, a
    place may be in several groups."""
    numbers: dict[Group, int] = {}
    values = [_values(known, name) for name in by]
    groups: Iterable[Group] = zip(*values, strict=True) if values else repeat((), len(known.ids))
    if "tag" not in by:
        codes = np.array([numbers.setdefault(group, len(numbers)) for group in groups])
        return list(numbers), np.arange(len(places)), codes[places]
    place = by.index("tag")
    several = [
        [
            numbers.setdefault((*group[:place], tag, *group[place + 1 :]), len(numbers))
            for tag in json.loads(group[place] or "[]") or [None]
        ]
        for group in groups
    ]
    found = [(column, code) for column, row in enumerate(places.tolist()) for code in several[row]]
    columns, codes = np.array(found, np.int64).reshape(-1, 2).T
    return list(numbers), columns, codes


def _values(known: Known, name: Dimension) -> Sequence[Any]:
    values = known.columns[COLUMNS.get(name, name)]
    return ["true" if one else "false" for one in values] if name == "is_simulated" else values


def _counts(known: Known, name: str) -> Any:
    if name == "simulated_requests":
        return np.array([bool(one) for one in known.columns["is_simulated"]])
    return np.array([one in STATUSES[name] for one in known.columns["status"]])
