"""Whoever is cancelled in a transaction of SQLite's leaves no lock behind."""

import asyncio
import gc
import random
import sqlite3
from pathlib import Path

import pytest

from gateway.storage.database import migrate, open_database
from gateway.storage.sql.ledger import SqlLedger
from tests.unit.gateway.ledger.builders import make_entry

pytestmark = pytest.mark.integration
CLOSING_SECONDS = 10.0  # the thread that closes may still be at it
TRIES = 100


async def test_a_cancelled_batch_frees_the_file_although_its_traceback_has_a_cursor(tmp_path: Path) -> None:
    file, chance = tmp_path / "books.db", random.Random(1)
    url = f"sqlite+aiosqlite:///{file}"
    await migrate(url)
    engine = open_database(url)
    ledger = SqlLedger(engine)
    other = sqlite3.connect(file, timeout=CLOSING_SECONDS, isolation_level=None)
    gc.disable()
    try:
        for number in range(TRIES):
            call = asyncio.create_task(ledger.insert([make_entry(number)]))
            await asyncio.sleep(chance.random() * 0.01)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
    finally:
        gc.enable()
    other.close()
    await engine.dispose()
