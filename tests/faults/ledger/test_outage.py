"""A database that is down, and slow, at full load: callers notice nothing, nothing is lost or doubled, memory stays
flat.

The full test is `BREAKEVEN_OUTAGE_SECONDS=60 BREAKEVEN_OUTAGE_RATE=2000`; the default is scaled down.
"""

import asyncio
import gc
import os
import time
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.config.settings import ServerSettings
from gateway.ledger.batch import Batch
from gateway.ledger.journal import SEGMENT_BYTES, Journal
from gateway.ledger.shipper import EntrySink, Shipper
from gateway.storage.database import migrate, open_database
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.tables.books import entries, hourly
from tests.unit.gateway.ledger.builders import make_entry, make_intent

SECONDS = float(os.environ.get("BREAKEVEN_OUTAGE_SECONDS", "1"))
RATE = float(os.environ.get("BREAKEVEN_OUTAGE_RATE", "500"))
DRAIN_SECONDS = 300 + 5 * SECONDS
COMMIT_SECONDS = SECONDS / 30  # 2 s of the real minute
FLAT_BYTES = 100_000 + 20 * SECONDS * RATE * 3 / 4  # 20 bytes per request are less than any object that could leak
MOST_IN_FLIGHT = ServerSettings().max_requests_in_flight
SMALL_SEGMENT = 8 << 20  # enough for the scaled rate, and quickly created
pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.timeout(900 + 10 * SECONDS)]


class TroubledSink:
    """Passes batches on late, or not at all."""

    def __init__(self, sink: EntrySink) -> None:
        self._sink = sink
        self.is_down = False
        self.commit_seconds = 0.0
        self.refused = 0

    async def insert(self, batch: Batch) -> int:
        if self.is_down:
            self.refused += 1
            raise ConnectionError("the database is down")
        await asyncio.sleep(self.commit_seconds)
        return await self._sink.insert(batch)


class Load:
    """Requests at a rate, as far as the gateway would accept them. Any error visible to a caller ends the test."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.sent = 0
        self.ended = 0

    async def run(self, seconds: float) -> None:
        began, first = time.monotonic(), self.sent
        async with asyncio.TaskGroup() as callers:
            while (passed := time.monotonic() - began) < seconds:
                while self.sent < first + passed * RATE and self.sent - self.ended < MOST_IN_FLIGHT:
                    self.sent += 1
                    callers.create_task(self._one(self.sent))
                await asyncio.sleep(0.005)

    async def _one(self, number: int) -> None:
        self._journal.intend(make_intent(number))
        await asyncio.sleep(0.002)
        await self._journal.settle(make_entry(number))
        self.ended += 1


@pytest.fixture
async def books(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    url = f"sqlite+aiosqlite:///{tmp_path / 'books.db'}"
    await migrate(url)
    engine = open_database(url)
    yield engine
    await engine.dispose()


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = Journal.open(
        tmp_path / "journal",
        on_failure=lambda error: None,
        segment_bytes=SMALL_SEGMENT if SECONDS < 10 else SEGMENT_BYTES,
    )
    yield opened
    await opened.aclose()


@asynccontextmanager
async def shipping(shipper: Shipper) -> AsyncGenerator[None]:
    """Ships during the block."""
    running = asyncio.create_task(shipper.run())
    yield
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await asyncio.sleep(0)  # lets the loop release the task, and the batch that it was reading


async def booked(engine: AsyncEngine) -> tuple[int, int]:
    """(number of rows, number of requests in the sums)."""
    async with engine.connect() as connection:
        rows = (await connection.execute(select(func.count()).select_from(entries))).scalar_one()
        return rows, (await connection.execute(select(func.sum(hourly.c.requests)))).scalar_one()


async def test_a_database_that_is_down_is_noticed_by_nobody(journal: Journal, books: AsyncEngine) -> None:
    sink = TroubledSink(SqlLedger(books))
    shipper, load = Shipper(journal, sink), Load(journal)
    async with shipping(shipper):
        await load.run(0.2)
        sink.is_down, before = True, load.sent
    tracemalloc.start()
    held: list[int] = []
    for share in (0.25, 0.75):
        async with shipping(shipper):
            await load.run(SECONDS * share)
            while not sink.refused:  # the first measurement includes what the first refusal allocates permanently
                await asyncio.sleep(0.01)
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert journal.unshipped_entries >= load.sent - before > 0
    assert held[1] - held[0] < FLAT_BYTES
    sink.is_down = False
    await load.run(0.2)
    assert await shipper.drain(timeout_seconds=DRAIN_SECONDS)
    assert await booked(books) == (load.sent, load.sent)


async def test_commits_that_take_long_delay_the_books_and_nothing_else(journal: Journal, books: AsyncEngine) -> None:
    sink = TroubledSink(SqlLedger(books))
    sink.commit_seconds = COMMIT_SECONDS
    shipper, load = Shipper(journal, sink), Load(journal)
    async with shipping(shipper):  # probably ends in the middle of a commit, so the batch is sent again
        await load.run(SECONDS)
    assert await shipper.drain(timeout_seconds=DRAIN_SECONDS)
    assert await booked(books) == (load.sent, load.sent)
    assert shipper.gauges()["shipping_failures"] == 0
