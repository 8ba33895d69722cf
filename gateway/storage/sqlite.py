"""Opens SQLite, for processes with an event loop and without. Knows nothing of what is stored.

Imports neither SQLAlchemy's asyncio nor its ORM, since the child that writes rows needs neither.
"""

import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url

from gateway.storage.database_down import tell_when_down, told_as_down

BUSY_TIMEOUT_SECONDS = 60  # on a slow disk, a first start, which other processes wait for, has taken over ten seconds
# FULL, although the journal is the durable copy until a row is shipped: journal segments are deleted on the strength
# of the commit here, and keys and rules have no journal. A commit every quarter of a second costs nothing.
SQLITE_PRAGMAS = (
    f"PRAGMA busy_timeout={BUSY_TIMEOUT_SECONDS * 1000}",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA cache_size=-65536",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA mmap_size=268435456",
)


class EndingConnection(sqlite3.Connection):
    """Ends its transaction when closed. SQLite keeps a closed connection, and its locks, as long as somebody has one of
    its cursors: that of a cancelled call is in the call's traceback until the cycle collector comes."""

    def close(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # closed before
            self.rollback()
        super().close()


CONNECT_ARGUMENTS: Final = {"factory": EndingConnection}


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite")


def open_blocking_sqlite(url: str) -> Engine:
    """Opens SQLite for a process with nothing else to do, without a thread or event loop in between."""
    engine = create_engine(sqlite_url(url).set(drivername="sqlite"), connect_args=CONNECT_ARGUMENTS)
    configure_sqlite(engine)
    return engine


def sqlite_url(url: str) -> URL:
    made = make_url(url)
    if made.database and made.database != ":memory:":
        Path(made.database).parent.mkdir(parents=True, exist_ok=True)
    return made


def configure_sqlite(engine: Engine) -> None:
    where = engine.url.render_as_string()

    def configure(connection: Any, record: object) -> None:
        # The driver must not open transactions by itself: `begin` below says which kind.
        connection.isolation_level = None
        cursor = connection.cursor()
        with told_as_down(where):
            _switch_to_wal(cursor)
            for pragma in SQLITE_PRAGMAS:
                cursor.execute(pragma)
        cursor.close()

    def begin(connection: Connection) -> None:
        # A transaction that reads before it writes must take the write lock first, or two of them would deadlock.
        is_writing = connection.get_execution_options().get("is_writing", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")

    event.listen(engine, "connect", configure)
    event.listen(engine, "begin", begin)
    tell_when_down(engine, _dial)


def _dial(dialect: Any, arguments: Any, options: Any) -> Any:
    """Where aiosqlite cannot open a file, it leaves a thread behind, whose traceback follows a command's last word."""
    sqlite3.connect(*arguments, **options).close()
    return dialect.connect(*arguments, **options)


def _switch_to_wal(cursor: Any) -> None:
    """Switch to write-ahead logging, which the file remembers.

    If several processes open a new file together, SQLite reports "locked" at once to all but one: the busy timeout does
    not cover this switch, so it is retried here.
    """
    give_up_at = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_at:
                raise
            time.sleep(0.01)


@contextmanager
def writing_here(engine: Engine) -> Generator[Connection]:
    """One write transaction, as `gateway.storage.database.writing`."""
    with engine.connect() as plain:
        connection = plain.execution_options(is_writing=True)
        with connection.begin():
            yield connection
