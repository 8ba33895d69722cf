"""A SQLite file whose content may be lost: if it is damaged or has another schema, it is replaced by an empty one.

Blocking; for use from one thread. Does not know what is stored.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from gateway.errors import StoreDown
from gateway.storage.database_down import DAMAGED, GONE, SQLITE_CODES, sqlite_code

log = logging.getLogger(__name__)
T = TypeVar("T")
PRAGMAS: Final = (
    "PRAGMA auto_vacuum=INCREMENTAL",  # takes effect only in a new file
    "PRAGMA busy_timeout=500",
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=NORMAL",  # syncs only at checkpoints: power loss costs the newest rows, never the file
    "PRAGMA secure_delete=ON",
    "PRAGMA wal_autocheckpoint=0",  # writers would wait for its syncs; `checkpoint` is called in the background
    "PRAGMA temp_store=MEMORY",
)
BESIDE: Final = ("-wal", "-shm", "")
"""Suffixes of SQLite's files; the main file is deleted last, since the others are useless without it."""
MODE: Final = 0o600
PASSING: Final = SQLITE_CODES - GONE
"""Errors after which a connection still works: a lock, a full disk."""


class DisposableFile:
    """`schema` are the statements that create it; `prepare` is called with each new connection before its use."""

    def __init__(self, path: Path, schema: Sequence[str], prepare: Callable[[sqlite3.Connection], None]) -> None:
        self.path = path
        self._schema = schema
        self._prepare = prepare
        self._connection: sqlite3.Connection | None = None

    def ask(self, ask: Callable[[sqlite3.Connection], T]) -> T:
        """Returns the result of `ask`, which may be called a second time, with an empty file.

        Raises StoreDown if the file cannot be used now; the next call opens it again.
        """
        try:
            try:
                return ask(self._opened())
            except sqlite3.DatabaseError as error:
                if sqlite_code(error) not in DAMAGED:
                    raise
                log.error("%s is damaged (%s): its content is lost, and a new file is created", self.path, error)
                self._remove()
                return ask(self._opened())
        except (sqlite3.Error, OSError) as error:
            if sqlite_code(error) not in PASSING:
                self._let_go()
            raise StoreDown(f"cannot use {self.path}: {error}") from error

    def close(self) -> None:
        """Moves the write-ahead log into the file and closes it. Raises StoreDown if that fails."""
        try:
            self._close()
        except sqlite3.Error as error:
            raise StoreDown(f"cannot close {self.path}: {error}") from error

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect() or self._connect()
        if self._connection is None:
            raise StoreDown(f"another version of Breakeven uses {self.path} now")
        return self._connection

    def _connect(self) -> sqlite3.Connection | None:
        """None if the file had another schema and was deleted."""
        _keep_private(self.path)
        connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            for pragma in PRAGMAS:
                connection.execute(pragma).fetchall()
            if self._is_ours(connection):
                self._prepare(connection)
                return connection
        except BaseException:
            connection.close()
            raise
        connection.close()
        log.warning("%s was written by another version: its content is lost", self.path)
        remove_file(self.path)
        return None

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """Whether it has our schema, which is created in an empty file."""
        with writing(connection):
            found = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
            if not found:
                for statement in self._schema:
                    connection.execute(statement)
            return not found or found == set(self._schema)

    def _remove(self) -> None:
        self._let_go()
        remove_file(self.path)

    def _let_go(self) -> None:
        with suppress(sqlite3.Error):  # the caller already knows what is wrong with the file
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def remove_file(path: Path) -> None:
    """Deletes the file and SQLite's files beside it. Raises OSError."""
    for suffix in BESIDE:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


@contextmanager
def writing(connection: sqlite3.Connection) -> Generator[None]:
    """One transaction: committed at the end, rolled back on an error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # otherwise SQLite has rolled back by itself, for example on a full disk
            connection.execute("ROLLBACK")
        raise


def checkpoint(connection: sqlite3.Connection) -> None:
    """Moves the write-ahead log into the file and truncates the log, which contains overwritten data. Incomplete while
    another process reads; then the next call does it."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def give_back(connection: sqlite3.Connection, pages: int) -> None:
    """Returns up to this many free pages of the file to the file system."""
    connection.executescript(f"PRAGMA incremental_vacuum({pages})")  # `execute` would free only one page


def number_of(connection: sqlite3.Connection, pragma: str) -> int:
    return connection.execute(f"PRAGMA {pragma}").fetchone()[0]


def _keep_private(path: Path) -> None:
    """Makes the file readable only by its owner, before anything is in it; SQLite's other files get the same mode."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))
    except FileExistsError:
        found = path.stat()
        if found.st_uid == os.geteuid() and found.st_mode & 0o777 != MODE:
            path.chmod(MODE)
