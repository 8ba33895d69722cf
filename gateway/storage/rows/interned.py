"""Ids of dimensions and circumstances: looked up, or inserted, once, then remembered."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Table, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.storage.rows.dimension import digest

MAX_REMEMBERED = 50_000
CHUNK = 500


def insert_or_ignore(connection: Connection | AsyncConnection, table: Table, *unique: str) -> Any:
    """INSERT ... ON CONFLICT (what is `unique`, else the primary key) DO NOTHING in the connection's dialect.

    It says which conflict, because PostgreSQL then refuses a table without that key: one that a backup is just being
    restored into gets its keys last, and would take everything twice.
    """
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return insert(table).on_conflict_do_nothing(index_elements=unique or [one.name for one in table.primary_key])


class Interned:
    """One of the two tables. Remembers only what `remember` was told after the commit: an id may be rolled back."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._names = [column.name for column in table.columns][2:]
        self._ids: dict[tuple[object, ...], int] = {}
        self._newest: tuple[object, ...] = ()
        """Whose id is the highest of them."""

    def ids(self, connection: Connection, wanted: Iterable[tuple[object, ...]]) -> dict[tuple[object, ...], int]:
        """Of every given row, inserting what is new; in one order everywhere, so that no two writers deadlock."""
        distinct = set(wanted)
        if self._ids and not self._are_of(connection):
            self._ids.clear()
        found = {values: self._ids[values] for values in distinct if values in self._ids}
        missing = {digest(values): values for values in distinct if values not in found}
        if not missing:
            return found
        rows: list[dict[str, Any]] = [
            {"digest": key, **dict(zip(self._names, values, strict=True))} for key, values in sorted(missing.items())
        ]
        connection.execute(insert_or_ignore(connection, self._table, "digest"), rows)
        for start in range(0, len(rows), CHUNK):
            keys = [row["digest"] for row in rows[start : start + CHUNK]]
            table = self._table
            known = connection.execute(select(table.c.digest, table.c.id).where(table.c.digest.in_(keys)))
            found |= {missing[bytes(key)]: number for key, number in known}
        return found

    def remember(self, ids: dict[tuple[object, ...], int]) -> None:
        if len(self._ids) > MAX_REMEMBERED:
            self._ids.clear()
        self._ids |= ids
        newest = max(ids, key=ids.__getitem__, default=self._newest)
        if self._newest not in self._ids or self._ids[newest] > self._ids[self._newest]:
            self._newest = newest

    def _are_of(self, connection: Connection) -> bool:
        """Whether the database still has the newest: one that was restored from a backup lacks what came after it, and
        gives the same ids to others."""
        ask = f"SELECT digest FROM {self._table.name} WHERE id = {self._ids[self._newest]:d}"
        known = connection.exec_driver_sql(ask).scalar()
        return known is not None and bytes(known) == digest(self._newest)
