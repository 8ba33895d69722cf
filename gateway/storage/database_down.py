"""Translates the errors of an unusable database, by driver, into ours. Knows nothing of the queries."""

import re
import sqlite3
import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext

from gateway.errors import DatabaseDown
from gateway.storage.tables import metadata

# https://www.postgresql.org/docs/current/errcodes-appendix.html: connection, login, database name, no schema to create
# in, missing privilege (since PostgreSQL 15 only the owner of a database may create tables; a restored backup may be
# owned by another user), resources (disk, memory, connections), lock not available, operator intervention, system
# error. Everything else is our own mistake.
POSTGRES_STATES = ("08", "28", "3D", NO_SCHEMA := "3F000", NOT_OURS := "42501", "53", "55P03", "57", "58")
IN_THE_WAY = frozenset({"55P03", "40P01", "40001"})
"""Lock not available, deadlock, and serialization failure."""
READ_ONLY = "25006"
NO_SUCH_TABLE = "42P01"
NO_SUCH_KEY = "42P10"
"""No unique constraint for ON CONFLICT: a backup adds the keys in its last statements."""
OUR_TABLES = re.compile(rf"\b({'|'.join(metadata.tables)})\b")
"""Our table names in a driver's message, whatever its language. Any other missing table is our own mistake."""
SQLITE_CODES = frozenset(
    (
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOTADB,
    )
)
GONE = SQLITE_CODES - {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_FULL, sqlite3.SQLITE_PROTOCOL}
"""Errors that a connection never recovers from: one opened while the disk was read-only stays read-only."""
DAMAGED = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))
PRIMARY_CODE = 0xFF
"""The low byte of SQLite's extended codes."""

NO_AUTHORITY = "root certificate file"
VERIFIED = "ssl=verify-"
OWN_AUTHORITY = (
    "; PGSSLROOTCERT names the file, readable here, of the certificate authority that signed its certificate, and with "
    "verify-full the address is the name in that"
)
FILE_OR_CERTIFICATE = (ssl.SSLError, FileNotFoundError, PermissionError)
SQLITE_READ_ONLY = (
    "; give the file, those beside it with its name and their folder to the user that runs this, or mount its disk for "
    "writing again"
)
SQLITE_DAMAGED = (
    "; the file is damaged: stop the gateway and restore a backup of it, without the -wal and -shm files that lie "
    "beside the damaged one"
)
NO_ANSWER = (
    "it did not answer in time, as when it hangs or waits for a lock that another session holds (`pg_blocking_pids` "
    "names it)"
)
TOO_MANY, CANCELLED = "53300", "57014"
CONNECTIONS_NEEDED = (
    "; each worker opens up to eleven: raise its max_connections, or the CONNECTION LIMIT of the user or database, run "
    "fewer workers, or put PgBouncer before it"
)
LONGER_STATEMENTS = "; if a statement_timeout of the server, the database or the user ended it, raise that"
POSTGRES_READ_ONLY = (
    "; it is a replica, where the primary is needed, or default_transaction_read_only is on for its user or itself"
)


def _dial(dialect: Any, arguments: Any, options: Any) -> Any:
    return dialect.connect(*arguments, **options)


def tell_when_down(engine: Engine, dial: Callable[[Any, Any, Any], Any] = _dial) -> None:
    """From now on, raise errors of the database itself (not of a query) as DatabaseDown.

    `dial` opens a connection from the dialect and the arguments of its `connect`.
    """
    where = engine.url.render_as_string()

    def translate(context: ExceptionContext) -> DatabaseDown | None:
        error = context.original_exception
        if _is_read_only(error) or sqlite_code(error) in GONE or isinstance(error, TimeoutError):
            # After a failover the server now at that address may be writable, but this connection never will be. And a
            # silent connection cannot even be rolled back.
            context.is_disconnect = True
        if sqlite_code(error) in GONE and (execution := context.execution_context) is not None:
            # SQLite keeps a file open while a statement is open, and the next connection would reuse that handle.
            execution.cursor.close()
        if context.is_pre_ping or not isinstance(error, Exception):  # a cancellation is not a database error
            return None
        if not (context.is_disconnect or is_down(error)):
            return None
        return _down(where, error)

    def connect(dialect: Any, record: object, arguments: Any, options: Any) -> Any:
        with told_as_down(where):
            return dial(dialect, arguments, options)

    event.listen(engine, "handle_error", translate, retval=True)
    event.listen(engine, "do_connect", connect)


def is_down(error: BaseException) -> bool:
    """Whether a driver reports that the database cannot be used now, timeouts included."""
    if isinstance(error, TimeoutError):
        return True
    is_sqlites = sqlite_code(error) in SQLITE_CODES
    return is_sqlites or _is_read_only(error) or _state(error).startswith(POSTGRES_STATES) or lacks_schema(error)


def is_in_the_way(error: BaseException) -> bool:
    """Whether the refused statement may succeed shortly, once other transactions have finished."""
    causes = (error, getattr(error, "orig", None), error.__cause__)
    return any(_state(one) in IN_THE_WAY for one in causes if one is not None)


def lacks_schema(error: BaseException) -> bool:
    """Whether our tables or their keys are missing: a partly restored backup, or another schema."""
    if _state(error) == NO_SUCH_KEY:
        return True
    said = str(error)
    is_said = _state(error) == NO_SUCH_TABLE or said.startswith("no such table")
    return is_said and OUR_TABLES.search(said) is not None


def lacking(where: str, cause: str) -> DatabaseDown:
    """`cause` names what is missing."""
    return DatabaseDown(
        f"cannot use the database {where}: {cause}. It was restored in part, or is from before an upgrade, or its "
        "address, its user or a `search_path` leads elsewhere: restore the backup whole, run `breakeven migrate` if "
        "`breakeven doctor` says that its schema is older, or correct `database` in breakeven.yaml or "
        "BREAKEVEN_DATABASE_URL"
    )


def _state(error: BaseException) -> str:
    """PostgreSQL's SQLSTATE, under SQLAlchemy's attribute name or the driver's."""
    return str(getattr(error, "pgcode", None) or getattr(error, "sqlstate", None) or "")


def sqlite_code(error: BaseException) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & PRIMARY_CODE


def _is_read_only(error: BaseException) -> bool:
    return _state(error) == READ_ONLY or sqlite_code(error) == sqlite3.SQLITE_READONLY


@contextmanager
def told_as_down(where: str) -> Generator[None]:
    """For opening a connection, where the driver's errors arrive untranslated."""
    try:
        yield
    except (OSError, TimeoutError) as error:
        raise _down(where, error) from error
    except Exception as error:
        if not (is_down(error) or isinstance(error.__cause__, ValueError)):  # asyncpg's, of an address or a certificate
            raise
        raise _down(where, error) from error


def _down(where: str, error: BaseException) -> DatabaseDown:
    cause = str(error) or (NO_ANSWER if isinstance(error, TimeoutError) else type(error).__name__)
    if lacks_schema(error):
        return lacking(where, cause)
    if _state(error) == NO_SCHEMA or (_state(error) == NOT_OURS and " schema " in cause):
        cause += (
            "; make the user of that address the owner of its database (`ALTER DATABASE ... OWNER TO`), or at least "
            "let it create tables (`GRANT USAGE, CREATE ON SCHEMA public TO`)"
        )
    elif _state(error) == NOT_OURS:
        cause += "; give its tables to the user of that address, as `REASSIGN OWNED BY` in psql does"
    elif _state(error) == TOO_MANY:
        cause += CONNECTIONS_NEEDED
    elif _state(error) == CANCELLED:
        cause += LONGER_STATEMENTS
    elif _is_read_only(error):
        cause += SQLITE_READ_ONLY if _state(error) != READ_ONLY else POSTGRES_READ_ONLY
    elif sqlite_code(error) in DAMAGED:
        cause += SQLITE_DAMAGED
    elif NO_AUTHORITY in cause or (VERIFIED in where and isinstance(error, FILE_OR_CERTIFICATE)):
        cause += OWN_AUTHORITY
    return DatabaseDown(f"cannot use the database {where}: {cause}; {what_to_see(where)}")


def what_to_see(where: str) -> str:
    """Where to look first; `where` is its address."""
    if where.startswith("sqlite"):
        return "see that its disk has room, and that this user may write to the file and its folder"
    return "see that it runs and takes changes, that its address and password are right, and that its disk has room"
