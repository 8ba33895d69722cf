"""Looks up or inserts the ids of dimensions and circumstances, and caches them."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Dialect, Table, select
from sqlalchemy.dialects import postgresql, sqlite

from gateway.storage.rows.dimension import digest

MAX_REMEMBERED = 50_000
CHUNK = 500


def insert_or_ignore(dialect: Dialect, table: Table, *unique: str) -> Any:
    """INSERT ... ON CONFLICT (`unique`, by default the primary key) DO NOTHING.

    The key is named so that PostgreSQL rejects a table without it: while a backup is being restored, keys come last,
    and everything could be inserted twice.
    """
    insert = postgresql.insert if dialect.name == "postgresql" else sqlite.insert
    return insert(table).on_conflict_do_nothing(index_elements=unique or [one.name for one in table.primary_key])


class Interned:
    """The ids of one of the two tables. Caches only what is passed to `remember` after the commit, since an insert may
    be rolled back."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._names = [column.name for column in table.columns][2:]
        self._ids: dict[tuple[object, ...], int] = {}
        self._newest: tuple[object, ...] = ()
        """The cached row with the highest id."""

    def ids(self, connection: Connection, wanted: Iterable[tuple[object, ...]]) -> dict[tuple[object, ...], int]:
        """The id of every given row. New ones are inserted, by all writers in the same order, so that they cannot
        deadlock."""
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
        connection.execute(insert_or_ignore(connection.dialect, self._table, "digest"), rows)
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
        """Whether the database still has the newest cached row: one restored from a backup lacks later rows, and reuses
        their ids."""
        ask = f"SELECT digest FROM {self._table.name} WHERE id = {self._ids[self._newest]:d}"
        known = connection.exec_driver_sql(ask).scalar()
        return known is not None and bytes(known) == digest(self._newest)
