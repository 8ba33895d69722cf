"""A real full file system: accepted requests settle, new ones are refused, and it recovers by itself."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.errors import LedgerUnavailable
from gateway.ledger.disk import LocalDisk
from gateway.ledger.journal import Journal
from gateway.ledger.shipper import Shipper
from tests.faults.ledger.power_loss import Database
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = [pytest.mark.faults, pytest.mark.integration]
SEGMENT_BYTES = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2.5 MB in memory: room for two segments but not for three."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2560k", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small tmpfs cannot be mounted: run as root, where mount(2) is allowed")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


async def accept_until_full(journal: Journal, first: int) -> list[int]:
    """Accepts twenty requests at a time, and settles all but the last, until a segment was refused; a refusal before
    that may only mean that one is being created."""
    accepted: list[int] = []
    while True:
        try:
            journal.intend(make_intent(first + len(accepted)))
        except LedgerUnavailable as refused:
            if "disk is full" in str(refused):
                return accepted
            await asyncio.sleep(0.005)
            continue
        accepted.append(first + len(accepted))
        if len(accepted) % 20 == 0:
            await asyncio.gather(*(journal.settle(make_entry(number)) for number in accepted[-20:]))


async def test_everything_accepted_settles_and_room_is_used_again(small_disk: Path) -> None:
    failures: list[OSError] = []
    journal = Journal(LocalDisk(small_disk), on_failure=failures.append, segment_bytes=SEGMENT_BYTES)
    database = Database()
    try:
        accepted = await accept_until_full(journal, 1)
        assert journal.gauges()["journal_bytes"] > 1.9 * SEGMENT_BYTES  # both segments are used up
        unsettled = [number for number in accepted if make_intent(number).request_id in journal.open_requests()]
        await asyncio.gather(*(journal.settle(make_entry(number)) for number in unsettled))

        # The database takes everything, which frees a segment and makes room for a new one.
        assert await Shipper(journal, database).drain(timeout_seconds=300)
        assert len(database.rows) == len(accepted)
        assert len(await accept_until_full(journal, 10_000)) > 500
        assert not failures
    finally:
        await journal.aclose()
