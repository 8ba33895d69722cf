"""Adds sums to the rows of `hourly` and `daily`, in the caller's transaction. Knows no entries."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, CursorResult, Dialect, Table, bindparam, func
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import asyncpg
from sqlalchemy.dialects.sqlite import pysqlite

from gateway.storage.sums.rollup import LARGEST, RANKED, SKETCHES, SUMS, Rows, by_day
from gateway.storage.sums.sketch import merged
from gateway.storage.tables.books import daily, hourly

CHUNK = 300
NO_SKETCHES = dict.fromkeys(SKETCHES, b"")


def add_to_rollups(connection: Connection, hours: Rows) -> None:
    """Add sums of hours to both rollups."""
    if hours:
        _add(connection, hourly, hours)
        _add(connection, daily, by_day(hours))


def _add(connection: Connection, table: Table, rows: Rows) -> None:
    """Add sums and merge sketches. The first statement locks the rows, in the order of `rows`."""
    unit, statements = table.columns[0].name, _statements_of(table, connection.dialect.name)
    statements.add.run(
        connection, [{unit: at, "dimension_id": of, **row, **NO_SKETCHES} for (at, of), row in rows.items()]
    )
    sketched = [key for key, row in rows.items() if any(row[name] for name in SKETCHES)]
    changed: list[dict[str, Any]] = []
    for start in range(0, len(sketched), CHUNK):
        for row in _sketches(connection, table, sketched[start : start + CHUNK]):
            [at, of, *present] = tuple(row)
            pairs = zip(SKETCHES, present, strict=True)
            changed.append({"at": at, "of": of, **{name: merged(old, rows[at, of][name]) for name, old in pairs}})
    if changed:
        statements.merge.run(connection, changed)


def _sketches(connection: Connection, table: Table, keys: Sequence[tuple[int, int]]) -> CursorResult[Any]:
    """The keys' rows: time, dimension and SKETCHES.

    Joined from the keys' side: for `(hour, dimension_id) IN (VALUES ...)` SQLite would scan the whole table.
    """
    unit = table.columns[0].name
    if connection.dialect.name == "postgresql":
        wanted = "SELECT * FROM unnest($1::int[], $2::int[]) AS pairs (column1, column2)"
        parameters: tuple[Any, ...] = tuple(zip(*keys, strict=True))
    else:
        wanted, parameters = f"VALUES {', '.join(['(?, ?)'] * len(keys))}", tuple(chain.from_iterable(keys))
    return connection.exec_driver_sql(
        f"SELECT {unit}, dimension_id, {', '.join(SKETCHES)} FROM ({wanted}) AS wanted CROSS JOIN {table.name} "
        f"WHERE {unit} = wanted.column1 AND dimension_id = wanted.column2",
        parameters,
    )


class _Raw(NamedTuple):
    """A statement for the driver, and a function from a row to its parameters."""

    sql: str
    parameters_of: Callable[[dict[str, Any]], tuple[Any, ...]]

    def run(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
        connection.exec_driver_sql(self.sql, [self.parameters_of(row) for row in rows])


class _Statements(NamedTuple):
    """The statements of one rollup: to add sums to rows, and to write a row's sketches."""

    add: _Raw
    merge: _Raw


@cache
def _statements_of(table: Table, dialect_name: str) -> _Statements:
    """Cached: for a small batch, building them takes longer than running them."""
    dialect: Dialect = asyncpg.dialect() if dialect_name == "postgresql" else pysqlite.dialect()
    insert: Any = (postgresql if dialect_name == "postgresql" else sqlite).insert(table)
    unit = table.columns[0]
    larger = func.greatest if dialect_name == "postgresql" else func.max
    sums = {name: table.c[name] + insert.excluded[name] for name in (*SUMS, RANKED)}
    sums |= {name: larger(table.c[name], insert.excluded[name]) for name in LARGEST}
    place = (unit == bindparam("at"), table.c.dimension_id == bindparam("of"))
    return _Statements(
        _raw(insert.on_conflict_do_update(index_elements=[unit.name, "dimension_id"], set_=sums), dialect),
        _raw(table.update().where(*place).values({name: bindparam(name) for name in SKETCHES}), dialect),
    )


def _raw(statement: Any, dialect: Dialect) -> _Raw:
    compiled = statement.compile(dialect=dialect)
    return _Raw(str(compiled), itemgetter(*compiled.positiontup))
