"""PostgreSQL behind a pooler in transaction mode: every transaction may use another connection."""

import asyncio

import pytest
from sqlalchemy import text

from gateway.storage.database import open_database
from gateway.storage.sql.ledger import SqlLedger
from tests.newest_schema import make_newest
from tests.pooled_postgres import pooled_postgres
from tests.postgres_server import empty_postgres
from tests.unit.gateway.ledger.builders import make_entry

pytestmark = pytest.mark.integration


async def test_processes_that_share_a_connection_do_not_meet_each_others_statements(postgres_directory: str) -> None:
    """The second process used to fail with `prepared statement "__asyncpg_stmt_1__" already exists`."""
    await make_newest(await empty_postgres(postgres_directory))
    async with pooled_postgres(postgres_directory) as url:
        one, other = SqlLedger(open_database(url)), SqlLedger(open_database(url))
        for number in range(0, 40, 10):
            batches = ([make_entry(first + step) for step in range(5)] for first in (number, number + 5))
            written = (ledger.insert(batch) for ledger, batch in zip((one, other), batches, strict=True))
            assert await asyncio.gather(*written) == [5, 5]
        number = 17
        assert [await ledger.get(make_entry(number).intent.request_id) for ledger in (one, other)] == [
            make_entry(number)
        ] * 2
        await one.aclose()
        await other.aclose()


async def test_without_a_pooler_statements_are_prepared_once(postgres_directory: str) -> None:
    engine = open_database(await empty_postgres(postgres_directory))
    async with engine.connect() as connection:
        for _ in range(2):
            await connection.execute(text("SELECT 1"))
        kept = await connection.execute(
            text("SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT 1'")
        )
        assert kept.scalar_one() == 1
    await engine.dispose()
