"""A SQLite file that may be lost: one that is damaged, or has other tables than ours, is replaced by an empty one.

For one thread, which may block. Knows nothing of what is stored.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from gateway.errors import StoreDown
from gateway.storage.database_down import DAMAGED, GONE, PRIMARY_CODE, SQLITE_CODES

log = logging.getLogger(__name__)
T = TypeVar("T")
PRAGMAS: Final = (
    "PRAGMA auto_vacuum=INCREMENTAL",  # heard by a new file alone
    "PRAGMA busy_timeout=500",
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=NORMAL",  # no sync but at a checkpoint: a loss of power costs the newest rows, never the file
    "PRAGMA secure_delete=ON",
    "PRAGMA wal_autocheckpoint=0",  # whoever writes would wait for its syncs; `checkpoint` is called beside them
    "PRAGMA temp_store=MEMORY",
)
BESIDE: Final = ("-wal", "-shm", "")
"""What SQLite appends to the file's name; the file itself last, without which the others are nothing."""
MODE: Final = 0o600
PASSING: Final = SQLITE_CODES - GONE
"""What a connection gets over: a lock, a full disk."""


class DisposableFile:
    """`schema` are the statements that make it; `prepare` is given each connection before anybody asks it."""

    def __init__(self, path: Path, schema: Sequence[str], prepare: Callable[[sqlite3.Connection], None]) -> None:
        self.path = path
        self._schema = schema
        self._prepare = prepare
        self._connection: sqlite3.Connection | None = None

    def ask(self, ask: Callable[[sqlite3.Connection], T]) -> T:
        """Its answer. It may be called a second time, of an empty file.

        Raises StoreDown where the file cannot be used now; it is opened anew the next time.
        """
        try:
            try:
                return ask(self._opened())
            except sqlite3.DatabaseError as error:
                if _code(error) not in DAMAGED:
                    raise
                log.error("%s is damaged (%s): what was kept there is lost, and it is begun anew", self.path, error)
                self._remove()
                return ask(self._opened())
        except (sqlite3.Error, OSError) as error:
            if _code(error) not in PASSING:
                self._let_go()
            raise StoreDown(f"cannot use {self.path}: {error}") from error

    def close(self) -> None:
        """What is in the write-ahead log comes into the file. Raises StoreDown where it cannot."""
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
        """None where it had other tables than ours, and now is not there any more."""
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
        log.warning("%s was written by another version: what was kept there is lost", self.path)
        remove_file(self.path)
        return None

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """An empty file becomes it."""
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
        with suppress(sqlite3.Error):  # whoever calls this has just been told what is wrong with it
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def remove_file(path: Path) -> None:
    """With what SQLite has beside it. Raises OSError."""
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
        if connection.in_transaction:  # else SQLite rolled it back itself, as where a disk is full
            connection.execute("ROLLBACK")
        raise


def checkpoint(connection: sqlite3.Connection) -> None:
    """What is in the write-ahead log comes into the file, and the log has no length any more: it holds what was
    overwritten since. While another process reads, that waits for the next time."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def give_back(connection: sqlite3.Connection, pages: int) -> None:
    """So many pages of the file that nobody needs, if there are."""
    connection.executescript(f"PRAGMA incremental_vacuum({pages})")  # `execute` would give back a single one


def number_of(connection: sqlite3.Connection, pragma: str) -> int:
    return connection.execute(f"PRAGMA {pragma}").fetchone()[0]


def _code(error: Exception) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & PRIMARY_CODE


def _keep_private(path: Path) -> None:
    """Readable by its owner alone, before anything is in it; SQLite gives what it has beside it the same mode."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))
    except FileExistsError:
        found = path.stat()
        if found.st_uid == os.geteuid() and found.st_mode & 0o777 != MODE:
            path.chmod(MODE)
