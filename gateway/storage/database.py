"""Opens a database and brings its schema up to date. Knows SQLite and PostgreSQL and nothing of what is stored.

Alembic is imported only when the schema must change, which saves CPU at every other start.
"""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import Connection, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from gateway.errors import DatabaseDown, StateError
from gateway.extras import install_command
from gateway.storage.database_down import is_in_the_way, lacking, what_to_see
from gateway.storage.postgres import Patience, open_postgres
from gateway.storage.revisions import missing_tables, newest_revision, present_revision
from gateway.storage.sqlite import CONNECT_ARGUMENTS, configure_sqlite, sqlite_url

log = logging.getLogger(__name__)
LOOKED_THROUGH_BYTES = 1 << 30
SCHEMA_LOCK = 0x62726B65_76656E31
AUDIT_LOCK = 0x62726B65_76656E32
FIRST_KEYS_LOCK = 0x62726B65_76656E33
RENTS_LOCK = 0x62726B65_76656E34
RETENTION_LOCK = 0x62726B65_76656E35
RECONCILIATION_LOCK = 0x62726B65_76656E36
REPRICING_LOCK = 0x62726B65_76656E37
BATCHES_LOCK = 0x62726B65_76656E38
LATER_LOCK = 0x62726B65_76656E39
CORRECTIONS_LOCK = 0x62726B65_76656E3A
FEEDBACK_LOCK = 0x62726B65_76656E3B
PATIENT_MS = 500
"""How long changing a table in use waits for its lock; others who come later queue behind it for that long."""
AGAIN_SECONDS = 1.0
TOLD_EVERY = 30
LET_GO = text("SET LOCAL idle_in_transaction_session_timeout = '60s'")
"""A transaction whose machine froze or was lost gives back its locks after that long. PostgreSQL would keep them for
as long as TCP does, two hours, and no other replica could book a request of the same hour, or change a key."""
CUSTOM_PLANS = text("SET LOCAL plan_cache_mode = force_custom_plan")
"""PostgreSQL may plan a statement for any parameters from its sixth execution on: it then expected no dimension to meet
seven unknown operations, and a fortnight of a report took over two minutes instead of a second."""
SERVING = Patience()
MIGRATING = Patience(statement_seconds=None)


def open_database(url: str, patience: Patience = SERVING) -> AsyncEngine:
    """`sqlite+aiosqlite:///FILE` or `postgresql+asyncpg://...`; nothing is connected yet. `patience` is PostgreSQL's.

    Raises StateError when the URL is neither, or its driver is not installed.
    """
    try:
        backend = make_url(url).get_backend_name()
        if backend == "sqlite":
            engine = create_async_engine(sqlite_url(url), connect_args=CONNECT_ARGUMENTS)
            configure_sqlite(engine.sync_engine)
            return engine
        if backend == "postgresql":
            return open_postgres(url, patience)
    except OSError as error:
        raise StateError(f"cannot use the database's directory: {error}") from error
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise StateError(f"cannot use the database URL: {error}; {install_command('postgres')}?") from error
    raise StateError(f"cannot use a {backend} database: SQLite and PostgreSQL are supported")


@asynccontextmanager
async def writing(engine: AsyncEngine) -> AsyncGenerator[AsyncConnection]:
    """One write transaction: committed at the end, rolled back on an error."""
    async with engine.connect() as plain:
        connection = await plain.execution_options(is_writing=True)
        async with connection.begin():
            if connection.dialect.name == "postgresql":
                await connection.execute(LET_GO)
            yield connection


@asynccontextmanager
async def at_one_moment(engine: AsyncEngine) -> AsyncGenerator[AsyncConnection]:
    """All reads see one snapshot, as of the first query (always the case in SQLite), and are planned for their
    parameters."""
    async with engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            await connection.execution_options(isolation_level="REPEATABLE READ")
            await connection.execute(CUSTOM_PLANS)
        yield connection


async def require_writable(engine: AsyncEngine) -> None:
    """Raises DatabaseDown if the database is read-only: a replica, or a file owned by another user."""
    async with writing(engine) as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = version_num"))


def lacks_its_file(engine: AsyncEngine) -> bool:
    """Whether it is SQLite's and has no file yet: connecting makes an empty one, of whoever looks, such as root."""
    return engine.dialect.name == "sqlite" and not Path(engine.url.database or "").exists()


async def require_room_for_tables(engine: AsyncEngine) -> None:
    """Raises DatabaseDown if this user may not create tables, as nobody but the owner may in a new PostgreSQL."""
    async with writing(engine) as connection:
        await connection.execute(text("CREATE TABLE breakeven_trial (tried INTEGER)"))
        await connection.rollback()


async def require_undamaged(engine: AsyncEngine) -> None:
    """Raises DatabaseDown if SQLite finds damaged pages in its file; files over a GB are not checked."""
    if engine.dialect.name != "sqlite":
        return
    async with engine.connect() as connection:
        size, page = (text(f"PRAGMA {name}") for name in ("page_count", "page_size"))
        bytes_of_it = (await connection.execute(size)).scalar_one() * (await connection.execute(page)).scalar_one()
        if bytes_of_it > LOOKED_THROUGH_BYTES:
            return
        found = (await connection.execute(text("PRAGMA quick_check(1)"))).scalar_one()
    if found != "ok":
        raise DatabaseDown(
            f"{engine.url.database} is damaged ({' '.join(found.split())}): stop the gateway, keep a copy of the file "
            "and restore the last backup; what the journal still holds is shipped again at the next start"
        )


async def take_all_the_time(connection: AsyncConnection) -> None:
    """Lifts the server's statement limits for this transaction: half a migration is none, and replicas that start
    together wait for the one that migrates."""
    if connection.dialect.name == "postgresql":
        for limit in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            await connection.execute(text(f"SET LOCAL {limit} = 0"))


async def lock(connection: AsyncConnection, number: int) -> None:
    """Takes an exclusive lock until this transaction ends; a no-op on SQLite, which has only one writer."""
    if connection.dialect.name == "postgresql":
        await connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": number})


async def share_lock(connection: AsyncConnection, number: int) -> None:
    """As `lock`, with all others who share it."""
    if connection.dialect.name == "postgresql":
        await connection.execute(text("SELECT pg_advisory_xact_lock_shared(:number)"), {"number": number})


async def try_lock(connection: AsyncConnection, number: int) -> bool:
    """As `lock`, without waiting: returns whether the lock was taken."""
    if connection.dialect.name != "postgresql":
        return True
    return (
        await connection.execute(text("SELECT pg_try_advisory_xact_lock(:number)"), {"number": number})
    ).scalar_one()


async def get_out_of_the_way(change: Callable[[], Awaitable[None]], what: str) -> None:
    """Retry `change` until no reader or writer blocks it, giving up each time before others queue behind it."""
    tries = 0
    while True:
        try:
            return await change()
        except (DBAPIError, DatabaseDown) as error:
            if not is_in_the_way(error):
                raise
            if tries % TOLD_EVERY == 0:
                log.info("%s waits for somebody who uses its tables, as a long report or a backup does", what)
        tries += 1
        await asyncio.sleep(AGAIN_SECONDS)


async def shared_now_us(connection: AsyncConnection, here: Callable[[], int]) -> int:
    """The database server's clock, which all replicas share; with SQLite, the machine's clock, which they share too."""
    if connection.dialect.name != "postgresql":
        return here()
    return (
        await connection.execute(text("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"))
    ).scalar_one()


async def surely_now_us(engine: AsyncEngine, here_us: int) -> int:
    """For who deletes what is old: one replica's clock may be ahead of the database server's."""
    async with engine.connect() as connection:
        return min(here_us, await shared_now_us(connection, lambda: here_us))


async def schema_there(engine: AsyncEngine) -> str | None:
    """The schema's revision; None: no schema. Changes nothing. Raises DatabaseDown."""
    async with engine.connect() as connection:
        present = await connection.run_sync(present_revision)
        if present == newest_revision():
            await require_tables(connection)
        return present


async def require_tables(connection: AsyncConnection) -> None:
    """Raises DatabaseDown if the schema claims to be the newest but tables are missing."""
    if missing := await connection.run_sync(missing_tables):
        where = connection.engine.url.render_as_string()
        raise lacking(where, f"it lacks tables of its schema ({', '.join(missing[:5])})")


async def migrate(url: str, revision: str = "head") -> None:
    """Bring the schema to `revision`, up or down ("base" is empty). Raises StateError, also for a newer schema.

    Several processes may call it at the same time.
    """
    engine = open_database(url, MIGRATING)
    try:
        await get_out_of_the_way(lambda: _bring(engine, revision), "the schema's change")
    except (DBAPIError, OSError, sqlite3.Error, TimeoutError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        where = engine.url.render_as_string()
        raise StateError(f"cannot use the database {where}: {cause}; {what_to_see(where)}") from error
    finally:
        await engine.dispose()


async def migrate_engine(engine: AsyncEngine) -> None:
    """As `migrate`, for the database of an engine that may have shorter timeouts."""
    await migrate(engine.url.render_as_string(hide_password=False))


async def _bring(engine: AsyncEngine, revision: str) -> None:
    async with writing(engine) as connection:
        await take_all_the_time(connection)
        await lock(connection, SCHEMA_LOCK)
        if connection.dialect.name == "postgresql":
            await connection.execute(text(f"SET LOCAL lock_timeout = {PATIENT_MS}"))
        await connection.run_sync(_bring_to, revision)
        if revision == "head":
            await require_tables(connection)


def _bring_to(connection: Connection, revision: str) -> None:
    if revision == "head" and present_revision(connection) == newest_revision():
        return
    from gateway.storage.schema import bring_to

    bring_to(connection, revision)
