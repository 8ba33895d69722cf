"""kill -9 at random moments under load: everything answered is booked once, and everything accepted is settled."""

import asyncio
import os
import random
import signal
import sys
from pathlib import Path

import pytest
from sqlalchemy import func, select

from gateway.ledger.directories import claim_directory
from gateway.ledger.entry import Status
from gateway.ledger.journal import Journal
from gateway.ledger.shipper import Shipper
from gateway.storage.database import migrate, open_database
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.tables.books import entries, hourly
from tests.unit.gateway.ledger.builders import make_entry, request_id

KILLS = int(os.environ.get("BREAKEVEN_KILLS", "4"))
ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.faults, pytest.mark.integration]


async def run_until_killed(directory: Path, url: str, first: int, chance: random.Random) -> tuple[set[int], set[int]]:
    """(numbers that a worker accepted, numbers that it settled) before it was killed."""
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.ledger.crash_worker", str(directory), url, str(first),
        stdout=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert worker.stdout is not None
    said = [await worker.stdout.readline() for _ in range(1 + chance.randrange(1600))]
    await asyncio.sleep(chance.random() * 0.02)
    worker.send_signal(signal.SIGKILL)
    said += (await worker.stdout.read()).splitlines(keepends=True)
    assert await worker.wait() == -signal.SIGKILL
    words = [line.split() for line in said if line.endswith(b"\n")]
    return {int(n) for word, n in words if word == b"a"}, {int(n) for word, n in words if word == b"s"}


async def test_nothing_answered_is_lost_and_nothing_is_booked_twice(tmp_path: Path) -> None:
    chance = random.Random(11)
    url, journals = f"sqlite+aiosqlite:///{tmp_path / 'books.db'}", tmp_path / "journal"
    await migrate(url)
    accepted: set[int] = set()
    settled: set[int] = set()
    for life in range(KILLS):
        accepted_now, settled_now = await run_until_killed(journals, url, 1_000_000 * (life + 1), chance)
        accepted |= accepted_now
        settled |= settled_now

    engine = open_database(url)
    ledger = SqlLedger(engine)
    with claim_directory(journals) as claim:
        journal = Journal.open(claim.path, on_failure=lambda error: None, segment_bytes=1 << 19)
        assert await Shipper(journal, ledger).drain(timeout_seconds=120)
        await journal.aclose()
    async with engine.connect() as connection:
        rows = (await connection.execute(select(func.count()).select_from(entries))).scalar()
        assert (await connection.execute(select(func.sum(hourly.c.requests)))).scalar() == rows
    booked = {entry.intent.request_id: entry async for page in ledger.entries(0, 1 << 60) for entry in page}
    assert len(booked) == rows
    for number in settled:
        assert booked[request_id(number)] == make_entry(number)
    unfinished = {booked[request_id(number)].status for number in accepted - settled}
    assert unfinished <= {Status.completed, Status.orphaned}
    assert Status.orphaned in unfinished
    assert len(settled) > 20 * KILLS
    await engine.dispose()
