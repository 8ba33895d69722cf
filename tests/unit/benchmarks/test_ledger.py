"""The ledger's benchmark measures what it says: how long a sync of the journal takes here."""

import asyncio
from pathlib import Path

from benchmarks.ledger.requests import JournalBook, TimedSyncer, closed_loop, measure_disk, stop, syncer_of
from benchmarks.ledger.traffic import make_entries
from gateway.ledger.disk import LocalDisk
from gateway.ledger.journal import Journal


async def test_every_sync_of_the_journal_is_timed(tmp_path: Path) -> None:
    alone = await asyncio.to_thread(measure_disk, tmp_path)
    assert set(alone) == {"p50", "p99"}
    syncer = TimedSyncer(syncer_of(tmp_path))
    journal = Journal(LocalDisk(tmp_path / "journal"), on_failure=stop, syncer=syncer)
    entries = make_entries(40)
    assert await closed_loop(JournalBook(journal), entries, 4) > 0
    await journal.aclose()
    assert 1 <= len(syncer.milliseconds) <= len(entries) + 1
    assert min(syncer.milliseconds) > 0
