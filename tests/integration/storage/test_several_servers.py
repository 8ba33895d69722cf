"""PostgreSQL's address may name several servers: the writable one is found, whatever the others do."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.config.addresses import parse_database_url
from gateway.errors import DatabaseDown
from gateway.storage.database import migrate, open_database, require_writable
from gateway.storage.postgres import Patience
from tests.postgres_server import empty_postgres
from tests.silent_postgres import silent_postgres

pytestmark = pytest.mark.integration
PATIENCE = Patience(connect_seconds=3.0)


@pytest.fixture
async def restored(postgres_directory: str) -> AsyncIterator[AsyncEngine]:
    """An engine; afterwards the server is made writable again."""
    engine = open_database(await empty_postgres(postgres_directory))
    yield engine
    async with engine.connect() as connection:
        await connection.execute(text("SET default_transaction_read_only = off"))
        await connection.commit()
        await connection.execute(text("ALTER ROLE postgres RESET default_transaction_read_only"))
        await connection.commit()
    await engine.dispose()


async def test_one_that_is_down_and_one_that_says_nothing_are_passed_over(postgres_directory: str) -> None:
    """The driver's timeout covers all of them together: a dead machine used it up, and no other was tried."""
    await migrate(await empty_postgres(postgres_directory))
    async with silent_postgres(postgres_directory) as (silent, url):
        silent.silence()
        directory = url.partition("host=")[2]
        several = f"postgresql://postgres@/postgres?host=127.0.0.1,{directory},{postgres_directory}&port=1,5432,5432"
        engine = open_database(parse_database_url(several), PATIENCE)
        async with asyncio.timeout(60):
            await require_writable(engine)
        await engine.dispose()


async def test_a_former_primary_that_came_back_as_a_replica_will_not_do(
    postgres_directory: str, restored: AsyncEngine
) -> None:
    async with restored.connect() as connection:
        await connection.execute(text("ALTER ROLE postgres SET default_transaction_read_only = on"))
        await connection.commit()
    several = f"postgresql://postgres:secret@/postgres?host=127.0.0.1,{postgres_directory}&port=1,5432"
    engine = open_database(parse_database_url(several), PATIENCE)
    with pytest.raises(DatabaseDown, match=r"127\.0\.0\.1:1: .*Connect call failed.*; .*:5432: .*read-write") as caught:
        async with engine.connect():
            pass
    assert "secret" not in str(caught.value)
    await engine.dispose()
