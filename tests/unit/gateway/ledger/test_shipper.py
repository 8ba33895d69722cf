"""Shipping to a database that fails, repeats or hangs."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.errors import LedgerUnavailable
from gateway.instants import HOUR_US
from gateway.ledger.entry import Entry
from gateway.ledger.journal import Journal
from gateway.ledger.shipper import LOOK_POLLS, Shipper
from tests.simulated_disk import SimulatedDisk
from tests.unit.gateway.ledger.builders import make_entry, make_intent, request_id
from tests.unit.gateway.ledger.journals import open_journal


class FlakyDatabase:
    """Fails while `is_down`, and waits while `is_locked`; with `forgets_to_answer` it commits and then fails, like a
    lost connection."""

    def __init__(self) -> None:
        self.rows: dict[str, Entry] = {}
        self.is_down = False
        self.is_locked = False
        self.forgets_to_answer = False

    async def insert(self, batch: Sequence[Entry]) -> int:
        await asyncio.sleep(0)
        if self.is_down:
            raise ConnectionError("down")
        while self.is_locked:
            await asyncio.sleep(0.01)
        before = len(self.rows)
        for entry in batch:
            self.rows.setdefault(entry.intent.request_id, entry)
        if self.forgets_to_answer:
            self.forgets_to_answer = False
            raise ConnectionError("cut")
        return len(self.rows) - before


@pytest.fixture
def journal() -> Journal:
    return Journal(SimulatedDisk(random.Random(1)), on_failure=lambda error: None, segment_bytes=1 << 17)


async def settle(journal: Journal, numbers: range) -> None:
    for number in numbers:
        journal.intend(make_intent(number))
        await journal.settle(make_entry(number))


async def test_everything_arrives_once_although_the_database_was_down_and_cut(journal: Journal) -> None:
    database = FlakyDatabase()
    shipper = Shipper(journal, database)
    await settle(journal, range(30))
    database.is_down = True
    with pytest.raises(ConnectionError):
        await shipper.ship_once()
    assert shipper.gauges()["unshipped_entries"] == 30
    assert shipper.gauges()["unshipped_seconds"] >= 0
    database.is_down = False
    database.forgets_to_answer = True
    with pytest.raises(ConnectionError):
        await shipper.ship_once()
    await settle(journal, range(30, 40))
    assert await shipper.ship_once() == 40
    assert sorted(database.rows) == [request_id(number) for number in range(40)]
    assert shipper.gauges()["duplicate_entries"] == 30
    assert shipper.gauges()["unshipped_entries"] == 0
    await journal.aclose()


async def test_run_ships_and_drain_finishes(journal: Journal) -> None:
    database = FlakyDatabase()
    shipper = Shipper(journal, database)
    running = asyncio.create_task(shipper.run())
    await settle(journal, range(50))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await shipper.drain(timeout_seconds=300)
    assert len(database.rows) == 50
    await journal.aclose()


async def test_drain_gives_up_in_time_and_keeps_what_it_could_not_ship(journal: Journal) -> None:
    database = FlakyDatabase()
    database.is_down = True
    await settle(journal, range(3))
    assert not await Shipper(journal, database).drain(timeout_seconds=0.1)
    assert journal.unshipped_entries == 3
    await journal.aclose()


async def test_after_a_failed_sync_what_is_durable_is_shipped_and_nothing_else_waited_for() -> None:
    disk = SimulatedDisk(random.Random(1))
    journal = Journal(disk, on_failure=lambda error: None, segment_bytes=1 << 17)
    database = FlakyDatabase()
    await settle(journal, range(3))
    disk.fail_sync_at = disk.syncs + 1
    with pytest.raises(LedgerUnavailable):
        await settle(journal, range(3, 4))
    assert await Shipper(journal, database).ship_once() == 3
    assert journal.has_given_all
    assert journal.unshipped_entries == 1
    assert not await Shipper(journal, database).drain(timeout_seconds=300)
    assert sorted(database.rows) == [request_id(number) for number in range(3)]
    with pytest.raises(LedgerUnavailable, match="restart"):
        journal.require_synced()
    await journal.aclose()


async def test_a_disk_too_full_to_note_what_is_shipped_is_told_once_and_delays_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal, database = open_journal(tmp_path), FlakyDatabase()
    shipper = Shipper(journal, database)
    (tmp_path / "shipped").mkdir()
    for number in range(3):
        await settle(journal, range(number, number + 1))
        assert await shipper.ship_once() == 1
    assert not journal.unshipped_entries
    assert ["see that the disk of BREAKEVEN_HOME has room" in one for one in caplog.messages].count(True) == 1
    (tmp_path / "shipped").rmdir()
    await settle(journal, range(3, 4))
    assert await shipper.ship_once() == 1
    assert (tmp_path / "shipped").exists()
    await journal.aclose()


@pytest.mark.parametrize("fault", ["is_down", "is_locked"])
async def test_that_the_database_takes_nothing_is_known_until_it_does(
    fault: str, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    database = FlakyDatabase()
    setattr(database, fault, True)
    shipper = Shipper(journal, database, told_seconds=0.05)
    await settle(journal, range(3))
    running = asyncio.create_task(shipper.run())
    while not shipper.is_failing:
        await asyncio.sleep(0.01)
    assert "3 entries wait in the journal" in caplog.messages[-1]
    setattr(database, fault, False)
    while shipper.is_failing:
        await asyncio.sleep(0.01)
    assert len(database.rows) == 3
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await journal.aclose()


async def test_drain_does_not_wait_for_a_database_that_never_answers(journal: Journal) -> None:
    class Silent(FlakyDatabase):
        async def insert(self, batch: Sequence[Entry]) -> int:
            await asyncio.Event().wait()
            return 0

    await settle(journal, range(3))
    assert not await Shipper(journal, Silent()).drain(timeout_seconds=0.1)
    assert await Shipper(journal, FlakyDatabase()).drain(timeout_seconds=300)
    await journal.aclose()


async def test_a_database_that_lost_the_last_it_had_taken_is_shipped_all_of_it_again(journal: Journal) -> None:
    """A lagging replica took over, without any error."""
    database = FlakyDatabase()
    shipper = Shipper(journal, database, now_us=lambda: make_intent(0).accepted_at_us)
    for begin in (0, 10, 20):
        await settle(journal, range(begin, begin + 10))
        assert await shipper.ship_once() == 10
    for number in range(13, 30):
        del database.rows[request_id(number)]
    await settle(journal, range(30, 31))
    assert await shipper.drain(timeout_seconds=300)
    assert set(database.rows) == {request_id(number) for number in range(31)}
    assert shipper.gauges()["unshipped_entries"] == 0
    await settle(journal, range(31, 32))
    assert await shipper.ship_once() == 1
    assert len(database.rows) == 32
    await journal.aclose()


async def test_a_loss_is_found_out_though_no_entry_comes(journal: Journal) -> None:
    """After a failover on Friday evening, the last entries would be too old on Monday to be sent again."""
    database = FlakyDatabase()
    shipper = Shipper(journal, database, now_us=lambda: make_intent(0).accepted_at_us)
    await settle(journal, range(10))
    assert await shipper.ship_once() == 10
    for number in range(3, 10):
        del database.rows[request_id(number)]
    for _ in range(2 * LOOK_POLLS):
        await shipper.ship_once()
    assert set(database.rows) == {request_id(number) for number in range(10)}
    assert shipper.gauges()["unshipped_entries"] == 0
    await journal.aclose()


async def test_what_a_database_may_have_forgotten_by_itself_is_not_offered_again(journal: Journal) -> None:
    database = FlakyDatabase()
    shipper = Shipper(journal, database, now_us=lambda: make_intent(0).accepted_at_us + 23 * HOUR_US + 3_000)
    await settle(journal, range(3))
    await shipper.ship_once()
    database.rows.clear()
    await settle(journal, range(3, 4))
    await shipper.ship_once()
    assert set(database.rows) == {request_id(3)}
    await journal.aclose()
