"""Kept responses or conversations as rows of a SQLite file. Blocking; for use from one thread. Knows no event loop, and
not what the bytes mean.

A separate file, because in the main database they would wait for its lock, and would end up in its backups.
"""

import logging
import math
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gateway.clock import unstepped_seconds
from gateway.errors import StoreDown
from gateway.kept_answers.expiring import SHARE
from gateway.kept_answers.record_store import Change
from gateway.storage.turns.disposable_file import DisposableFile, checkpoint, give_back, number_of, writing

log = logging.getLogger(__name__)
SCHEMA: Final = (
    "CREATE TABLE turns (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, until_ms INTEGER NOT NULL, "
    "owner TEXT NOT NULL, size INTEGER NOT NULL)",
    "CREATE INDEX turns_by_end ON turns (until_ms)",
    "CREATE INDEX turns_by_owner ON turns (owner, until_ms) WHERE owner <> ''",
    # Totals per owner: an owner may have a hundred thousand rows, and adding them up for every write would read all.
    "CREATE TABLE owners (owner TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TRIGGER turn_comes AFTER INSERT ON turns WHEN new.owner <> '' BEGIN "
    "INSERT INTO owners VALUES (new.owner, new.size) ON CONFLICT (owner) DO UPDATE SET bytes = bytes + new.size; END",
    "CREATE TRIGGER turn_goes AFTER DELETE ON turns WHEN old.owner <> '' BEGIN "
    "UPDATE owners SET bytes = bytes - old.size WHERE owner = old.owner; "
    "DELETE FROM owners WHERE owner = old.owner AND bytes = 0; END",
    # In a table of their own, so that extending the time does not rewrite the bytes.
    "CREATE TABLE sealed (id INTEGER PRIMARY KEY, value BLOB NOT NULL)",
)
LEAST_FREE_BYTES: Final = 256 << 20
"""The file stops growing if its disk has less free space than this, which is left to the journal."""
ASKED: Final = "SELECT until_ms, value FROM turns JOIN sealed USING (id) WHERE name = ?"
FIRST_OF_ALL: Final = "SELECT id, until_ms FROM turns ORDER BY until_ms LIMIT 1"
FIRST_OF_OWNER: Final = FIRST_OF_ALL.replace(" ORDER", " WHERE owner = ? AND owner <> '' ORDER")
ROW_BYTES: Final = 512
"""Approximate overhead per row, so that thousands of small ones are counted, too."""
UNTIDY_PAGES: Final = 1024
SPARE_PAGES: Final = 8
"""Additional pages that a turn may need: a new one in each index, and their parents."""
FORGOTTEN_AT_ONCE: Final = 50
GIVEN_BACK_PAGES: Final = 1024
RENEWED_SHARE: Final = 0.001
"""The share of its time that must have passed before reading a turn extends it: the first turns of a conversation are
read again with each later one."""


def free_bytes_at(folder: Path) -> int:
    return shutil.disk_usage(folder).free


class TurnFile:
    """The file stays within `max_bytes`: those that would expire first are dropped, an owner's own if it has a large
    share. No time may be longer than `longest_seconds`. Every method may raise StoreDown."""

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int,
        longest_seconds: float,
        now: Callable[[], float] = time.time,
        unstepped: Callable[[], float] = unstepped_seconds,
        free_bytes: Callable[[Path], int] = free_bytes_at,
    ) -> None:
        self._file = DisposableFile(path, SCHEMA, self._prepare)
        self._max_bytes = max_bytes
        self._longest_seconds = longest_seconds
        # The wall clock may be set while this process runs, so it is read only once: across processes there is no
        # other.
        self._unstepped = unstepped
        self._began_at = now() - unstepped()
        self._free_bytes = free_bytes
        self._page_bytes = 4096
        self._written_pages = 0

    @property
    def is_untidy(self) -> bool:
        """Whether the write-ahead log has become long."""
        return self._written_pages > UNTIDY_PAGES

    def open(self) -> None:
        self._file.ask(lambda _: None)

    def close(self) -> None:
        self._file.close()

    def get(self, name: str, seconds: float | None) -> bytes | None:
        """The value; extends its time to `seconds` from now, if given."""
        return self._file.ask(lambda connection: self._get(connection, name, seconds))

    def put(self, name: str, value: bytes, seconds: float, *, owner: str = "") -> None:
        """Stores the value, unless it is larger than the whole file may be."""
        until_ms = self._ms(seconds)

        def put(connection: sqlite3.Connection) -> None:
            with writing(connection):
                self._write(connection, name, value, until_ms, owner=owner)

        self._file.ask(put)

    def swap(self, change: Change, seconds: float) -> bool:
        """See RecordStore. Erased data is in the write-ahead log until `empty_log`."""
        return self._file.ask(lambda connection: self._swap(connection, change, seconds))

    def renew(self, name: str, seconds: float) -> None:
        """Extends its time to `seconds` from now."""
        self._file.ask(lambda connection: self._renew(connection, name, self._ms(seconds)))

    def delete(self, name: str) -> bool:
        """Overwrites its bytes, which are in the write-ahead log until `empty_log`."""
        return self._file.ask(lambda connection: self._delete(connection, name))

    def empty_log(self) -> None:
        """When this returns, nothing is left of deleted, expired or replaced data. Syncs twice."""
        self._file.ask(checkpoint)

    def forget(self) -> bool:
        """Deletes some expired turns; returns whether there may be more."""
        return self._file.ask(self._forget)

    def tidy(self) -> None:
        """Empties the write-ahead log, and frees some pages if many are unused."""
        self._file.ask(self._tidy)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Adapts the file to this configuration and clock, since an earlier clock may have been ahead."""
        self._page_bytes = number_of(connection, "page_size")
        latest = self._ms(self._longest_seconds)
        with writing(connection):
            connection.execute("UPDATE turns SET until_ms = ? WHERE until_ms > ?", (latest, latest))
            self._make_room(connection, SPARE_PAGES)
        if number_of(connection, "page_count") > self._most_pages:
            give_back(connection, number_of(connection, "freelist_count"))
            checkpoint(connection)

    def _get(self, connection: sqlite3.Connection, name: str, seconds: float | None) -> bytes | None:
        found = connection.execute(ASKED, (name,)).fetchone()
        if found is None or found[0] <= self._ms():
            return None
        if seconds is None:
            return found[1]
        until_ms = self._ms(seconds)
        if until_ms - found[0] > seconds * 1000 * RENEWED_SHARE:
            try:
                self._renew(connection, name, until_ms)
            except sqlite3.OperationalError as error:  # for example on a full disk: reading works nevertheless
                log.warning("a stored response was read, but its time could not be extended: %s", error)
        return found[1]

    def _renew(self, connection: sqlite3.Connection, name: str, until_ms: int) -> None:
        self._written_pages += SPARE_PAGES
        connection.execute("UPDATE turns SET until_ms = ? WHERE name = ?", (until_ms, name))

    def _write(
        self,
        connection: sqlite3.Connection,
        name: str,
        value: bytes,
        until_ms: int,
        *,
        owner: str = "",
        spared_ms: float = math.inf,
    ) -> bool:
        """Returns whether there was room; turns that expire at `spared_ms` or later are not dropped for it."""
        pages = len(value) // self._page_bytes + SPARE_PAGES
        self._written_pages += 2 * pages  # its own, and those overwritten to make room
        _drop(connection, name)
        if not self._make_room(connection, pages, owner=owner, spared_ms=spared_ms):
            return False
        self._leave_room(connection, pages)
        row = (name, until_ms, owner, ROW_BYTES + len(value))
        insert = "INSERT INTO turns (name, until_ms, owner, size) VALUES (?, ?, ?, ?)"
        number = connection.execute(insert, row).lastrowid
        connection.execute("INSERT INTO sealed (id, value) VALUES (?, ?)", (number, value))
        return True

    def _swap(self, connection: sqlite3.Connection, change: Change, seconds: float) -> bool:
        until_ms = self._ms(seconds)
        with writing(connection):
            found = connection.execute(ASKED, (change.name,)).fetchone()
            if (found[1] if found is not None and found[0] > self._ms() else None) != change.was:
                return False
            self._written_pages += SPARE_PAGES
            # Before anything is written, so that none of them is dropped to make room for another.
            renewed = [(until_ms, name) for name in (change.name, *change.renewed)]
            connection.executemany("UPDATE turns SET until_ms = ? WHERE name = ?", renewed)
            for name in (*change.gone, *((change.name,) if change.value is None else ())):
                _drop(connection, name)
            own = {} if change.value is None else {change.name: change.value}
            for name, value in {**change.beside, **own}.items():
                if not self._write(connection, name, value, until_ms, owner=change.owner, spared_ms=until_ms):
                    raise StoreDown(f"{self._file.path} has no room for all parts of the change")
        return True

    def _make_room(
        self, connection: sqlite3.Connection, pages: int, *, owner: str = "", spared_ms: float = math.inf
    ) -> bool:
        """Drops turns until `pages` are free; returns whether that succeeded."""
        if pages > self._most_pages:
            return False
        while number_of(connection, "page_count") - number_of(connection, "freelist_count") + pages > self._most_pages:
            has_much = _bytes_of(connection, owner) > self._max_bytes // SHARE
            first = connection.execute(FIRST_OF_OWNER, (owner,)).fetchone() if has_much else None
            if first is None or first[1] >= spared_ms:
                first = connection.execute(FIRST_OF_ALL).fetchone()
            if first is None or first[1] >= spared_ms:
                return False
            _remove(connection, first[0])
        return True

    def _leave_room(self, connection: sqlite3.Connection, pages: int) -> None:
        """Raises StoreDown if the file would have to grow while the disk is nearly full."""
        folder = self._file.path.parent
        if number_of(connection, "freelist_count") < pages and self._free_bytes(folder) < LEAST_FREE_BYTES:
            raise StoreDown(
                f"less than {LEAST_FREE_BYTES >> 20} MB are free at {folder}, and the journal may need them: make "
                "room, or keep responses in memory, with kept_answers.disk_megabytes: 0 in breakeven.yaml"
            )

    def _forget(self, connection: sqlite3.Connection) -> bool:
        asked = "SELECT id FROM turns WHERE until_ms <= ? ORDER BY until_ms LIMIT ?"
        over = connection.execute(asked, (self._ms(), FORGOTTEN_AT_ONCE)).fetchall()
        if over:
            with writing(connection):
                for (number,) in over:
                    _remove(connection, number)
        return len(over) == FORGOTTEN_AT_ONCE

    def _delete(self, connection: sqlite3.Connection, name: str) -> bool:
        with writing(connection):
            return _drop(connection, name)

    def _tidy(self, connection: sqlite3.Connection) -> None:
        if number_of(connection, "freelist_count") * 4 > number_of(connection, "page_count"):
            give_back(connection, GIVEN_BACK_PAGES)
        checkpoint(connection)
        self._written_pages = 0

    @property
    def _most_pages(self) -> int:
        return self._max_bytes // self._page_bytes

    def _ms(self, seconds: float = 0.0) -> int:
        """Milliseconds since the epoch, `seconds` from now."""
        return round((self._began_at + self._unstepped() + seconds) * 1000)


def _drop(connection: sqlite3.Connection, name: str) -> bool:
    found = connection.execute("SELECT id FROM turns WHERE name = ?", (name,)).fetchone()
    if found is not None:
        _remove(connection, found[0])
    return found is not None


def _bytes_of(connection: sqlite3.Connection, owner: str) -> int:
    """The owner's total; 0 without an owner."""
    found = connection.execute("SELECT bytes FROM owners WHERE owner = ?", (owner,)).fetchone() if owner else None
    return 0 if found is None else found[0]


def _remove(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("DELETE FROM turns WHERE id = ?", (number,))
    connection.execute("DELETE FROM sealed WHERE id = ?", (number,))
