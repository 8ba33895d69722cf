"""Kept responses, or conversations, as rows of a file, for one thread, which may block. Knows no event loop, and not
what the bytes are.

The file is theirs alone. In the books' database they would wait for its lock, and would be in its backups.
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
    # Added up beside them: an owner may have a hundred thousand rows, and each of its writes would read all.
    "CREATE TABLE owners (owner TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TRIGGER turn_comes AFTER INSERT ON turns WHEN new.owner <> '' BEGIN "
    "INSERT INTO owners VALUES (new.owner, new.size) ON CONFLICT (owner) DO UPDATE SET bytes = bytes + new.size; END",
    "CREATE TRIGGER turn_goes AFTER DELETE ON turns WHEN old.owner <> '' BEGIN "
    "UPDATE owners SET bytes = bytes - old.size WHERE owner = old.owner; "
    "DELETE FROM owners WHERE owner = old.owner AND bytes = 0; END",
    # Apart, so that more time is given without writing the bytes anew.
    "CREATE TABLE sealed (id INTEGER PRIMARY KEY, value BLOB NOT NULL)",
)
LEAST_FREE_BYTES: Final = 256 << 20
"""The file grows no more where its disk has less room than this: the journal may need it, and goes first."""
ASKED: Final = "SELECT until_ms, value FROM turns JOIN sealed USING (id) WHERE name = ?"
FIRST_OF_ALL: Final = "SELECT id, until_ms FROM turns ORDER BY until_ms LIMIT 1"
FIRST_OF_OWNER: Final = FIRST_OF_ALL.replace(" ORDER", " WHERE owner = ? AND owner <> '' ORDER")
ROW_BYTES: Final = 512
"""About what a row has beside its bytes: thousands of small ones are not for nothing."""
UNTIDY_PAGES: Final = 1024
SPARE_PAGES: Final = 8
"""What a turn may need beside its own pages: a new one in each index, and those above them."""
FORGOTTEN_AT_ONCE: Final = 50
GIVEN_BACK_PAGES: Final = 1024
RENEWED_SHARE: Final = 0.001
"""How much of its time must be gone before a turn that is read gets it anew: the first turns of a conversation are read
with each later one."""


def free_bytes_at(folder: Path) -> int:
    return shutil.disk_usage(folder).free


class TurnFile:
    """The file stays within `max_bytes`: what would be forgotten first makes room, among its own for an owner who has
    much. No time that is given may be longer than `longest_seconds`. Everything may raise StoreDown."""

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
        # Somebody may set the clock while this process runs; of the time between two processes it alone can tell.
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
        """For so many seconds more, where they are given."""
        return self._file.ask(lambda connection: self._get(connection, name, seconds))

    def put(self, name: str, value: bytes, seconds: float, *, owner: str = "") -> None:
        """Or not: larger than all that there is room for."""
        until_ms = self._ms(seconds)

        def put(connection: sqlite3.Connection) -> None:
            with writing(connection):
                self._write(connection, name, value, until_ms, owner=owner)

        self._file.ask(put)

    def swap(self, change: Change, seconds: float) -> bool:
        """See RecordStore. What it erases is in the write-ahead log until `empty_log`."""
        return self._file.ask(lambda connection: self._swap(connection, change, seconds))

    def renew(self, name: str, seconds: float) -> None:
        """As if it were read."""
        self._file.ask(lambda connection: self._renew(connection, name, self._ms(seconds)))

    def delete(self, name: str) -> bool:
        """Its bytes are overwritten; the write-ahead log has them until `empty_log`."""
        return self._file.ask(lambda connection: self._delete(connection, name))

    def empty_log(self) -> None:
        """What was deleted, forgotten or replaced is nowhere any more when this returns. It syncs twice."""
        self._file.ask(checkpoint)

    def forget(self) -> bool:
        """Some of those whose time is over. Whether there may be more of them."""
        return self._file.ask(self._forget)

    def tidy(self) -> None:
        """Empties the write-ahead log, and gives back a few pages where the file has many that nobody needs."""
        self._file.ask(self._tidy)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """For this configuration, and for this clock: an earlier one may have been ahead."""
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
            except sqlite3.OperationalError as error:  # as on a full disk: whoever asked may read it all the same
                log.warning("a kept response was read, and is not kept longer for that: %s", error)
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
        """Whether there was room, without those that are kept until then or longer."""
        pages = len(value) // self._page_bytes + SPARE_PAGES
        self._written_pages += 2 * pages  # its own, and those of others that are overwritten to make room
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
            # Before anything is written, so that none of them makes room for another.
            renewed = [(until_ms, name) for name in (change.name, *change.renewed)]
            connection.executemany("UPDATE turns SET until_ms = ? WHERE name = ?", renewed)
            for name in (*change.gone, *((change.name,) if change.value is None else ())):
                _drop(connection, name)
            own = {} if change.value is None else {change.name: change.value}
            for name, value in {**change.beside, **own}.items():
                if not self._write(connection, name, value, until_ms, owner=change.owner, spared_ms=until_ms):
                    raise StoreDown(f"{self._file.path} has no room for all that belongs together there")
        return True

    def _make_room(
        self, connection: sqlite3.Connection, pages: int, *, owner: str = "", spared_ms: float = math.inf
    ) -> bool:
        """Whether there is some."""
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
        """To others on this disk. Raises StoreDown."""
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
        """So many seconds from now."""
        return round((self._began_at + self._unstepped() + seconds) * 1000)


def _drop(connection: sqlite3.Connection, name: str) -> bool:
    found = connection.execute("SELECT id FROM turns WHERE name = ?", (name,)).fetchone()
    if found is not None:
        _remove(connection, found[0])
    return found is not None


def _bytes_of(connection: sqlite3.Connection, owner: str) -> int:
    """Of nobody's none."""
    found = connection.execute("SELECT bytes FROM owners WHERE owner = ?", (owner,)).fetchone() if owner else None
    return 0 if found is None else found[0]


def _remove(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("DELETE FROM turns WHERE id = ?", (number,))
    connection.execute("DELETE FROM sealed WHERE id = ?", (number,))
