"""Both kinds of database: a SQLite file, and a real PostgreSQL server started once and stopped at the end."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.ledger.entry import Entry
from gateway.storage.database import open_database
from gateway.storage.sql.ledger import SqlLedger
from tests.integration.storage.booked import random_entries
from tests.newest_schema import make_newest
from tests.postgres_server import empty_postgres


@pytest.fixture(params=["sqlite", "postgresql"])
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'test.db'}"
    return await empty_postgres(request.getfixturevalue("postgres_directory"))


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    """A database of each kind with the schema."""
    await make_newest(database_url)
    opened = open_database(database_url)
    yield opened
    await opened.dispose()


@pytest.fixture
async def stored(engine: AsyncEngine) -> list[Entry]:
    """Entries of every sort, in a database of each kind."""
    found = random_entries(400)
    ledger = SqlLedger(engine)
    for start in range(0, len(found), 150):
        await ledger.insert(found[start : start + 150])
    return found
