"""All errors of the database itself become one error of ours; errors of a query do not."""

import asyncio
import re
import sqlite3
from pathlib import Path

import psutil
import pytest
from sqlalchemy import PrimaryKeyConstraint, UniqueConstraint, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.config.home import Home
from gateway.errors import DatabaseDown
from gateway.ledger.entry import Attempt
from gateway.storage.database import (
    SCHEMA_LOCK,
    lock,
    migrate,
    open_database,
    require_room_for_tables,
    require_writable,
    schema_there,
    writing,
)
from gateway.storage.database_down import is_down
from gateway.storage.postgres import CONNECTIONS, MORE_CONNECTIONS
from gateway.storage.row_writer import RowWriter
from gateway.storage.rows.entry_rows import entry_rows
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.tables.books import attempts, circumstances, daily, dimensions, entries, hourly
from tests.newest_schema import make_newest
from tests.postgres_server import empty_postgres
from tests.unit.gateway.cli.doctor.examined import found
from tests.unit.gateway.ledger.builders import make_entry

pytestmark = pytest.mark.integration
FULL = "PRAGMA max_page_count = 1"
READ_ONLY = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"
FILL = f"CREATE TABLE filling AS SELECT '{'x' * 1_000_000}' AS word"
"""Needs more than the pages that the migrations left free."""


class Said(Exception):
    """An error as raised by a driver."""

    def __init__(self, said: str = "", *, state: str | None = None, code: int | None = None) -> None:
        super().__init__(said)
        self.sqlstate = state
        if code is not None:
            self.sqlite_errorcode = code


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Said(state="57P03"), True),  # starting up
        (Said(state="57014"), True),  # a statement took too long
        (Said(state="53100"), True),  # disk full
        (Said(state="28P01"), True),  # wrong password
        (Said(state="25006"), True),  # a replica
        (Said(state="55P03"), True),  # a lock
        (Said(state="42501"), True),  # tables owned by another role
        (Said(state="23505"), False),  # a key that exists already
        (Said(state="42P10"), True),  # a table whose keys are not restored yet
        (Said('relation "nowhere" does not exist', state="42P01"), False),
        (Said("Relation »entries« existiert nicht", state="42P01"), True),  # one of our tables
        (Said('column "entries" does not exist', state="42703"), False),
        (Said("no such table: entries", code=sqlite3.SQLITE_ERROR), True),
        (Said("no such table: my_entries", code=sqlite3.SQLITE_ERROR), False),
        (Said(code=sqlite3.SQLITE_IOERR_WRITE), True),
        (Said(code=sqlite3.SQLITE_READONLY_DBMOVED), True),
        (Said(code=sqlite3.SQLITE_CONSTRAINT_UNIQUE), False),
        (Said(code=sqlite3.SQLITE_ERROR), False),
        (Said(), False),
    ],
)
def test_a_database_that_cannot_be_used_is_told_from_a_wrong_question(error: Said, expected: bool) -> None:
    assert is_down(error) is expected


async def test_a_wrong_question_stays_the_drivers_error(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        with pytest.raises(DBAPIError):
            await connection.execute(text("SELECT nothing FROM nowhere"))


async def test_tables_that_are_missing_are_said_with_what_to_do(engine: AsyncEngine, database_url: str) -> None:
    """After a partial restore, under a running gateway and at a start: it used to be a traceback twice a second."""
    async with writing(engine) as connection:
        await connection.execute(text("DROP TABLE shadow_calls"))
    with pytest.raises(DatabaseDown, match=r"shadow_calls.*restore the backup whole, run `breakeven migrate` if"):
        async with engine.connect() as connection:
            await connection.execute(text("SELECT * FROM shadow_calls"))
    with pytest.raises(DatabaseDown, match=r"it lacks tables of its schema \(shadow_calls\)"):
        await migrate(database_url)


async def test_nothing_is_written_into_tables_that_have_no_keys_yet(postgres_directory: str) -> None:
    """Restoring a backup adds keys last: entries that the journal shipped before would be there twice for good."""
    url = await empty_postgres(postgres_directory)
    await make_newest(url)
    engine = open_database(url)
    assert await SqlLedger(engine).insert([make_entry(1)]) == 1
    for table in (attempts, circumstances, daily, dimensions, entries, hourly):
        async with engine.connect() as connection:  # rolled back at the end
            await connection.execute(text(f"LOCK TABLE {table.name}"))
            for constraint in table.constraints:
                if isinstance(constraint, (PrimaryKeyConstraint, UniqueConstraint)):
                    await connection.execute(text(f"ALTER TABLE {table.name} DROP CONSTRAINT {constraint.name}"))
            rows = [entry_rows(make_entry(2, attempts=(Attempt(1, "m", "b", "answered", 0.1, 1.0, None, 200),)))]
            with pytest.raises(DatabaseDown, match=r"no unique or exclusion constraint.*restore the backup whole"):
                await connection.run_sync(RowWriter().write, rows)
    await engine.dispose()


async def test_a_question_that_is_given_up_is_cancelled_and_nothing_else(postgres_directory: str) -> None:
    """SQLAlchemy treats that connection as lost, too."""
    engine = open_database(await empty_postgres(postgres_directory))
    async with engine.connect() as connection:
        asked = asyncio.create_task(connection.execute(text("SELECT pg_sleep(600)")))
        while not await _is_asleep(engine):
            await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
    await engine.dispose()


async def _is_asleep(engine: AsyncEngine) -> bool:
    """Checks in a new transaction, since within one the server's view of its sessions does not change."""
    async with engine.connect() as connection:
        found = await connection.execute(text("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'"))
        return found.scalar() is not None


async def test_a_full_disk_is_one_sentence_and_passes(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'books.db'}"
    await migrate(url)
    engine = open_database(url)
    async with engine.connect() as connection:
        await connection.execute(text(FULL))
        with pytest.raises(DatabaseDown, match=r"books\.db: database or disk is full; see that its disk has room, and"):
            await connection.execute(text(FILL))
    await engine.dispose()
    async with writing(engine) as connection:
        await connection.execute(text(FILL))
    await engine.dispose()


async def test_a_file_that_is_no_database_is_said_by_whoever_connects(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"this is not a database at all" * 50)
    engine = open_database(f"sqlite+aiosqlite:///{tmp_path / 'x.db'}")
    with pytest.raises(DatabaseDown, match=r"file is not a database; .* restore a backup of it, without the -wal"):
        async with engine.connect():
            pytest.fail("connected")
    await engine.dispose()


async def test_a_file_that_could_not_be_written_for_a_while_is_opened_again(tmp_path: Path) -> None:
    """On a disk mounted read-only, SQLite opens a file for reading, and it stays so as long as any handle is open."""
    url = f"sqlite+aiosqlite:///{tmp_path / 'books.db'}"
    await migrate(url)
    engine = open_database(url)
    async with engine.connect() as connection:
        await connection.execute(text("PRAGMA query_only = ON"))
    with pytest.raises(DatabaseDown, match=r"readonly database; give the file, .* mount its disk for writing again"):
        await require_writable(engine)
    assert not [one.path for one in psutil.Process().open_files() if one.path.startswith(str(tmp_path))]
    await require_writable(engine)
    await engine.dispose()


@pytest.mark.parametrize(("file", "said"), [("/nowhere.crt", "No such file"), ("", "root certificate file .* exist")])
async def test_a_certificate_authority_that_is_not_there_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, said: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PGSSLROOTCERT", file)
    url = "postgresql+asyncpg://postgres:secret@/postgres?host=127.0.0.1&ssl=verify-full"
    engine = open_database(url)
    with pytest.raises(DatabaseDown, match=f"{said}.*; PGSSLROOTCERT names the file"):
        await require_writable(engine)
    with pytest.raises(DatabaseDown, match=f"{said}.*; PGSSLROOTCERT names the file"):
        await migrate(url)
    await engine.dispose()


async def test_a_wrong_name_or_address_is_said_without_the_password(postgres_directory: str) -> None:
    nowhere = "postgresql+asyncpg://postgres:secret@/"
    for url, said in (
        (f"{nowhere}missing?host={postgres_directory}", 'database "missing" does not exist'),
        (f"{nowhere}postgres?host=/nowhere", "No such file"),
    ):
        with pytest.raises(DatabaseDown, match=said) as caught:
            await migrate(url)
        assert "secret" not in str(caught.value)


async def test_limits_that_the_server_sets_are_said_with_what_to_do(postgres_directory: str) -> None:
    url = await empty_postgres(postgres_directory)
    owner, limited = open_database(url), open_database(url.replace("postgres@", "limited@"))
    async with owner.begin() as connection:
        await connection.execute(text("CREATE ROLE limited LOGIN CONNECTION LIMIT 0"))
        await connection.execute(text("ALTER ROLE limited SET statement_timeout = '20ms'"))
    try:
        with pytest.raises(DatabaseDown, match=r"too many connections .*; each worker opens up to eleven: raise"):
            async with limited.connect():
                pytest.fail("connected")
        async with owner.begin() as connection:
            await connection.execute(text("ALTER ROLE limited CONNECTION LIMIT 2"))
        async with limited.connect() as connection:
            with pytest.raises(DatabaseDown, match=r"statement timeout; if a statement_timeout .* raise that"):
                await connection.execute(text("SELECT pg_sleep(600)"))
    finally:
        await limited.dispose()
        async with owner.begin() as connection:
            await connection.execute(text("DROP ROLE limited"))
        await owner.dispose()


def test_as_many_connections_as_the_advice_says() -> None:
    assert CONNECTIONS + MORE_CONNECTIONS + 1 == 11, "the writer has one"


async def test_after_a_failover_no_connection_to_a_replica_is_kept(postgres_directory: str) -> None:
    """A read-only one answers every ping, but must not be used for all later changes."""
    url = await empty_postgres(postgres_directory)
    await migrate(url)
    engine = open_database(url)
    async with engine.connect() as connection:
        await connection.execute(text(READ_ONLY))
        await connection.commit()
    with pytest.raises(DatabaseDown, match="read-only transaction"):
        async with writing(engine) as connection:
            await connection.execute(text(FILL))
    async with writing(engine) as connection:
        await connection.execute(text(FILL))
    await engine.dispose()


async def test_connections_that_the_server_ended_are_replaced_unnoticed(postgres_directory: str) -> None:
    url = await empty_postgres(postgres_directory)
    engine, other = open_database(url), open_database(url)
    async with engine.connect() as connection:
        pid = (await connection.execute(text("SELECT pg_backend_pid()"))).scalar()
    async with other.connect() as connection:
        await connection.execute(text("SELECT pg_terminate_backend(:pid, 60000)"), {"pid": pid})
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT pg_backend_pid()"))).scalar() != pid
    await engine.dispose()
    await other.dispose()


async def test_a_servers_own_time_limits_end_no_migration(postgres_directory: str) -> None:
    """As set by an administrator for all statements; here while another replica migrates."""
    url = await empty_postgres(postgres_directory)
    other = open_database(url)
    async with writing(other) as connection:
        await connection.execute(text("ALTER DATABASE postgres SET lock_timeout = '10ms'"))
    try:
        async with writing(other) as connection:
            await lock(connection, SCHEMA_LOCK)
            migrating = asyncio.create_task(migrate(url))
            waiting = text("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            while not migrating.done() and (await connection.execute(waiting)).first() is None:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            assert not migrating.done()
        await migrating
    finally:
        async with writing(other) as connection:
            await connection.execute(text("ALTER DATABASE postgres RESET lock_timeout"))
        await other.dispose()


async def test_tables_of_another_role_are_said_with_what_to_do(postgres_directory: str) -> None:
    """As after a backup restored under another user's name: it used to be a traceback every few seconds."""
    url = await empty_postgres(postgres_directory)
    await migrate(url)
    owner = open_database(url)
    async with writing(owner) as connection:
        await connection.execute(text("CREATE ROLE guest LOGIN"))
        await connection.execute(text("GRANT USAGE ON SCHEMA public TO guest"))
    guest = open_database(url.replace("postgres@", "guest@"))
    try:
        async with guest.connect() as connection:
            with pytest.raises(DatabaseDown, match="permission denied for table entries; give its tables to the user"):
                await connection.execute(text("SELECT count(*) FROM entries"))
    finally:
        await guest.dispose()
        async with writing(owner) as connection:
            await connection.execute(text("DROP OWNED BY guest"))
            await connection.execute(text("DROP ROLE guest"))
        await owner.dispose()


@pytest.mark.parametrize(
    ("granted", "says"),
    [("USAGE", "permission denied for schema public"), ("CREATE", "no schema has been selected to create in")],
)
async def test_a_user_who_may_create_nothing_is_said_with_what_to_do(
    postgres_directory: str, granted: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As since PostgreSQL 15 in each new database that another user owns: doctor said that `breakeven serve` makes the
    tables, and `breakeven serve` to give tables that there were none of to that user."""
    url = await empty_postgres(postgres_directory)
    advice = rf"{says}; make the user .*`GRANT USAGE, CREATE ON SCHEMA public TO`"
    owner = open_database(url)
    async with writing(owner) as connection:
        await connection.execute(text("CREATE ROLE newcomer LOGIN"))
        await connection.execute(text(f"GRANT {granted} ON SCHEMA public TO newcomer"))
    newcomers = url.replace("postgres@", "newcomer@")
    monkeypatch.setenv("BREAKEVEN_DATABASE_URL", newcomers)
    try:
        seen = (await asyncio.to_thread(found, Home(tmp_path / "home")))["database"]
        assert not seen.is_ok
        assert re.search(advice, seen.detail)
        with pytest.raises(DatabaseDown, match=advice):
            await migrate(newcomers)
        await require_room_for_tables(owner)
        assert await schema_there(owner) is None
    finally:
        async with writing(owner) as connection:
            await connection.execute(text("DROP OWNED BY newcomer"))
            await connection.execute(text("DROP ROLE newcomer"))
        await owner.dispose()


async def test_a_transaction_whose_machine_is_lost_lets_go_of_what_it_locked(postgres_directory: str) -> None:
    """The books of all replicas stood still for as long as TCP believed in the connection."""
    setting = text("SHOW idle_in_transaction_session_timeout")
    engine = open_database(await empty_postgres(postgres_directory))
    with pytest.raises(DatabaseDown):  # noqa: PT012
        async with writing(engine) as lost:
            assert (await lost.execute(setting)).scalar() == "1min"
            await lost.execute(text("SET LOCAL idle_in_transaction_session_timeout = '50ms'"))
            await lock(lost, SCHEMA_LOCK)
            async with writing(engine) as other:
                await lock(other, SCHEMA_LOCK)
            await lost.execute(setting)
    async with engine.connect() as connection:
        assert (await connection.execute(setting)).scalar() == "0", "for writing only"
    await engine.dispose()
