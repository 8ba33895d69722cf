"""Opens PostgreSQL with timeouts, so that nothing waits forever for a silent server. Knows no schema."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import InvalidatePoolError, InvalidRequestError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry, PoolProxiedConnection

from gateway.errors import DatabaseDown, InvalidRequest
from gateway.storage.database_down import tell_when_down

CONNECTIONS = 5
MORE_CONNECTIONS = 5
RENEW_SECONDS = 1800
TURN_SECONDS = 15.0
"""Longest wait for a free connection."""
UNNAMED = {"statement_cache_size": 0, "prepared_statement_cache_size": 0}
"""Unnamed prepared statements, prepared each time, so that nothing is kept between transactions."""
NOT_TEXT = "22021"
"""SQLSTATE for a NUL in a text, the only character that PostgreSQL cannot store."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a server may take to accept a connection, to answer a ping, and to execute a statement.

    None waits without limit: for a large migration, or for one that another process runs.
    """

    connect_seconds: float = 5.0
    sign_of_life_seconds: float = 5.0
    statement_seconds: float | None = 120.0


class _Pool(AsyncAdaptedQueuePool):
    def connect(self) -> PoolProxiedConnection:
        try:
            return super().connect()
        except InvalidRequestError as error:
            raise DatabaseDown("the database ends every connection at once; see that it stays up") from error

    def _do_get(self) -> ConnectionPoolEntry:
        try:
            return super()._do_get()
        except PoolExhausted as error:
            raise DatabaseDown(
                f"all {CONNECTIONS + MORE_CONNECTIONS} connections to the database have been busy for "
                f"{TURN_SECONDS:.0f} s; see that it answers, and what it is busy with"
            ) from error


def open_postgres(url: str, patience: Patience) -> AsyncEngine:
    """Does not connect yet. Any timeout raises DatabaseDown."""
    engine = create_async_engine(
        url,
        poolclass=_Pool,
        pool_size=CONNECTIONS,
        max_overflow=MORE_CONNECTIONS,
        pool_timeout=TURN_SECONDS,
        pool_recycle=RENEW_SECONDS,
        connect_args={"timeout": patience.connect_seconds, "command_timeout": patience.statement_seconds},
    )
    tell_when_down(engine.sync_engine, _Dialler())
    event.listen(engine.sync_engine, "handle_error", _refuse_nul, retval=True)
    driver: Any = engine.dialect.loaded_dbapi.asyncpg
    # InternalClientError: the server has announced its shutdown, but the connection is not closed yet.
    broken = (OSError, TimeoutError, driver.PostgresError, driver.InterfaceError, driver.InternalClientError)
    event.listen(engine.sync_engine, "checkout", _asking_for_life(patience.sign_of_life_seconds, broken))
    return engine


def _refuse_nul(context: ExceptionContext) -> InvalidRequest | None:
    """A NUL is the caller's mistake: our own queries never contain one."""
    if getattr(context.original_exception, "pgcode", None) != NOT_TEXT:
        return None
    return InvalidRequest("A text of this request has a NUL (U+0000) in it, which no text here can have.")


class _Dialler:
    """Opens connections that also work behind a pooler such as PgBouncer.

    A pooler may give each transaction a different server connection, which lacks the statements prepared on the last
    one, or has another client's under the same names. Unnamed statements make writing rows a third slower, so they are
    used only behind a pooler.
    """

    def __init__(self) -> None:
        self._is_behind_pooler = False
        self._answered_last: tuple[str, int] | None = None

    def __call__(self, dialect: Any, arguments: Any, options: Any) -> Any:
        if isinstance(options.get("host"), list):
            return self._dial_any(dialect, arguments, options)
        return self._dial(dialect, arguments, options)

    def _dial_any(self, dialect: Any, arguments: Any, options: Any) -> Any:
        """Each server gets the full timeout: the driver's covers all together, and a dead one could use it up.

        Requires a writable server: after a failover the former primary may be back as a replica.
        """
        servers = list(zip(options["host"], options["port"], strict=True))
        failures: list[str] = []
        for host, port in sorted(servers, key=lambda server: server != self._answered_last):
            one = {**options, "host": host, "port": port, "target_session_attrs": "read-write"}
            try:
                connection = self._dial(dialect, arguments, one)
            except (OSError, TimeoutError, dialect.loaded_dbapi.Error) as error:
                failures.append(f"{host}:{port}: {str(error) or type(error).__name__}")
            else:
                self._answered_last = (host, port)
                return connection
        raise OSError("; ".join(failures))

    def _dial(self, dialect: Any, arguments: Any, options: Any) -> Any:
        try:
            return self._opened(dialect, arguments, options)
        except dialect.loaded_dbapi.asyncpg.InternalClientError as error:  # the server announced its end as we came
            raise OSError(str(error)) from error

    def _opened(self, dialect: Any, arguments: Any, options: Any) -> Any:
        if not self._is_behind_pooler:
            connection = dialect.connect(*arguments, **options)
            self._is_behind_pooler = connection.run_async(_is_pooler)
            if not self._is_behind_pooler:
                return connection
            connection.terminate()
        connection = dialect.connect(*arguments, **{**options, **UNNAMED})
        self._is_behind_pooler = connection.run_async(_is_pooler)
        return connection


async def _is_pooler(driver: Any) -> bool:
    """A pooler greets with a made-up process id, because its server connections come and go."""
    statement = await driver.prepare("SELECT pg_backend_pid()", name="")
    return await statement.fetchval() != driver.get_server_pid()


def _asking_for_life(
    seconds: float, broken: tuple[type[Exception], ...]
) -> Callable[[Any, ConnectionPoolEntry, object], None]:
    """Replaces SQLAlchemy's own ping, which may wait as long as a statement."""

    def ask(connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:
        def nothing(driver: Any) -> Coroutine[Any, Any, object]:
            return driver.execute("SELECT 1", timeout=seconds)

        try:
            connection.run_async(nothing)
        except broken as error:
            # A new connection reports the cause better, and all older ones are as likely broken.
            raise InvalidatePoolError from error

    return ask
