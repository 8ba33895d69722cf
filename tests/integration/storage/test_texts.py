"""Text that a database cannot store is reported as the sender's mistake."""

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.errors import InvalidRequest
from gateway.storage.sql.budgets import SqlBudgets
from gateway.storage.sql.files import SqlFiles
from gateway.storage.sql.sealed import Seal

pytestmark = pytest.mark.integration


async def test_a_nul_is_refused_or_finds_nothing(engine: AsyncEngine) -> None:
    """PostgreSQL rejects it, which used to be reported as an internal error."""
    files = SqlFiles(engine, Seal(bytes(32), "pepper"))
    if engine.dialect.name == "sqlite":
        assert await files.get("team red", "file\0") is None
        return
    with pytest.raises(InvalidRequest, match="NUL"):
        await files.get("team red", "file\0")
    with pytest.raises(InvalidRequest, match="NUL"):
        await SqlBudgets(engine).remove("team", "red\0", author="ada")
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT 1"))).scalar() == 1
