"""Both real databases: a SQLite file, and a PostgreSQL server started once and stopped at the end."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.storage.database import open_database
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
    """A database of each kind with the schema in it."""
    await make_newest(database_url)
    opened = open_database(database_url)
    yield opened
    await opened.dispose()
