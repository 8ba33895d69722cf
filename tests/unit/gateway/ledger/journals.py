"""A journal in a real directory, used as by a worker and its shipper."""

import asyncio
from pathlib import Path

from gateway.errors import LedgerUnavailable
from gateway.ledger.disk import LocalDisk
from gateway.ledger.entry import Entry
from gateway.ledger.journal import Journal
from tests.unit.gateway.ledger.builders import make_entry, make_intent

SMALL = 1 << 16
PATIENCE_SECONDS = 60


def fail(error: OSError) -> None:
    raise AssertionError(f"the journal stopped: {error}")


def open_journal(directory: Path, segment_bytes: int = SMALL) -> Journal:
    return Journal(LocalDisk(directory), on_failure=fail, segment_bytes=segment_bytes)


def segments_of(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.seg"))


def read_all(journal: Journal) -> list[Entry]:
    entries: list[Entry] = []
    position = journal.shipped
    while True:
        some, end = journal.read_settled(position)
        if end == position:
            return entries
        entries += some
        position = end


async def settle_one(journal: Journal, number: int) -> None:
    journal.intend(make_intent(number))
    await journal.settle(make_entry(number))


async def settle_once_there_is_room(journal: Journal, number: int) -> None:
    """Retries while a segment is being created in a thread."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                journal.intend(make_intent(number))
                break
            except LedgerUnavailable:
                await asyncio.sleep(0.005)
    await journal.settle(make_entry(number))
