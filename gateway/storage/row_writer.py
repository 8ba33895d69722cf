"""Writes entries inside a transaction: each once, with its attempts and the sums. Knows SQL, but no engine.

Per-row statements go straight to the driver: SQLAlchemy's handling of parameters and results takes longer than the
database does.
"""

import zlib
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, text

from gateway.ledger.entry import Entry
from gateway.storage.database_down import told_as_down
from gateway.storage.rows.entry_rows import ROW, EntryRows
from gateway.storage.rows.interned import Interned, insert_or_ignore
from gateway.storage.sums.add_to_rollups import add_to_rollups
from gateway.storage.sums.end_user_days import add_to_end_users, counted_by_place
from gateway.storage.sums.rollup import roll_up
from gateway.storage.tables.books import attempts, circumstances, dimensions

CHUNK = 300
COLUMNS = (*ROW, "dimension_id", "circumstance_id")
NAMES = ", ".join(COLUMNS)
SQLITE_INSERT = f"INSERT INTO entries ({NAMES}) VALUES ({', '.join('?' * len(COLUMNS))})"
# The name has a checksum because, behind a pooler, the table may remain from a release with other columns. It includes
# defaults because a newer replica may have added columns that this version does not know.
INCOMING = f"incoming_{zlib.crc32(NAMES.encode()):08x}"
POSTGRES_INCOMING = (
    f"CREATE TEMPORARY TABLE IF NOT EXISTS {INCOMING} (LIKE entries INCLUDING DEFAULTS) ON COMMIT DELETE ROWS"
)
POSTGRES_INSERT = (  # which conflict: see insert_or_ignore
    f"INSERT INTO entries ({NAMES}) SELECT {NAMES} FROM {INCOMING}"
    " ON CONFLICT (request_id, accepted_at_us) DO NOTHING RETURNING request_id"
)
BYTES = (COLUMNS.index("request_id"), COLUMNS.index("detail"))
NAN = float("nan")
Record = tuple[Any, ...]
"""A row of `entries`, in the order of COLUMNS."""
Ids = dict[tuple[object, ...], int]


class Written(msgspec.Struct, frozen=True):
    """How many entries were new, and the ids to remember once they are committed."""

    count: int
    dimension_ids: Ids
    circumstance_ids: Ids


class RowWriter:
    """Caches the ids of repeating values across transactions."""

    def __init__(self) -> None:
        self._dimensions = Interned(dimensions)
        self._circumstances = Interned(circumstances)

    def write(self, connection: Connection, rows: Sequence[EntryRows]) -> Written:
        """`rows` must be ordered by request id, as from `once_each`, so that all writers lock in the same order."""
        wanted = {one.dimension for one in rows}
        wanted.update(part.dimension for one in rows for part in one.paid_parts)
        dimension_ids = self._dimensions.ids(connection, wanted)
        circumstance_ids = self._circumstances.ids(connection, {one.circumstance for one in rows})
        records = [(*one.row, dimension_ids[one.dimension], circumstance_ids[one.circumstance]) for one in rows]
        insert = _copy_into_postgres if connection.dialect.name == "postgresql" else _insert_into_sqlite
        numbers = insert(connection, records)
        new = [one for one in rows if one.row[0] in numbers]
        if tries := [attempt for one in new for attempt in one.attempts]:
            connection.execute(insert_or_ignore(connection.dialect, attempts), tries)
        add_to_rollups(connection, roll_up(new, dimension_ids.__getitem__))
        add_to_end_users(connection, counted_by_place(new))
        return Written(len(new), dimension_ids, circumstance_ids)

    def committed(self, written: Written) -> int:
        """Call after the commit; returns how many entries were new."""
        self._dimensions.remember(written.dimension_ids)
        self._circumstances.remember(written.circumstance_ids)
        return written.count


def once_each(batch: Iterable[Entry]) -> list[Entry]:
    """Without duplicates, ordered by request id."""
    first: dict[str, Entry] = {}
    for entry in batch:
        first.setdefault(entry.intent.request_id, entry)
    return [first[number] for number in sorted(first)]


def _insert_into_sqlite(connection: Connection, records: Sequence[Record]) -> set[bytes]:
    """Selects, then inserts: safe, as this transaction holds the only write lock. Returns the new request ids."""
    present: set[bytes] = set()
    for start in range(0, len(records), CHUNK):
        numbers = tuple(bytearray(record[0]) for record in records[start : start + CHUNK])
        known = f"SELECT request_id FROM entries WHERE request_id IN ({', '.join('?' * len(numbers))})"
        present.update(connection.exec_driver_sql(known, numbers).scalars())
    new = [record for record in records if record[0] not in present]
    if new:
        connection.exec_driver_sql(SQLITE_INSERT, [_unadapted(record) for record in new])
    return {record[0] for record in new}


def _unadapted(record: Record) -> Record:
    """The row without None and bytes: Python's driver looks each of those up in three registries, which takes longer
    than SQLite takes for the row. SQLite stores NaN as NULL."""
    known: list[Any] = [NAN if value is None else value for value in record]
    for place in BYTES:
        known[place] = bytearray(known[place])
    return tuple(known)


def _copy_into_postgres(connection: Connection, records: Sequence[Record]) -> set[bytes]:
    """COPY into a temporary table in this transaction, then insert what is new from there."""
    connection.execute(text("SET LOCAL synchronous_commit = on"))
    connection.exec_driver_sql(POSTGRES_INCOMING)

    def copy(driver: Any) -> Awaitable[object]:
        return driver.copy_records_to_table(INCOMING, records=records, columns=COLUMNS)

    adapted: Any = connection.connection.dbapi_connection
    with told_as_down(connection.engine.url.render_as_string()):
        adapted.run_async(copy)
    return {bytes(number) for number in connection.exec_driver_sql(POSTGRES_INSERT).scalars()}
