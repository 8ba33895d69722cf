import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from gateway.errors import BudgetExhausted, StateError
from gateway.ledger.batch import Batch
from gateway.ledger.entry import Cost
from gateway.ledger.journal import Journal
from gateway.ledger.shipper import Shipper
from gateway.limits.admission import Admission
from gateway.limits.budget_keeper import BudgetKeeper, CountingSink, carry_unshipped
from gateway.limits.counters import (
    Account,
    AccountBooks,
    Books,
    Corrections,
    CountersDown,
    Grant,
    Holding,
    Standing,
    budget_account,
    no_corrections,
    no_end_users,
)
from gateway.limits.local_counters import LocalCounters
from gateway.limits.treasury import Treasury
from gateway.limits.values import parse_limits, window_id
from gateway.process.tasks import end_tasks
from tests.unit.gateway.ledger.builders import make_entry, make_intent
from tests.virtual_time import run
from tests.waiting import until

NOW_US = 1_795_000_000_000_000
ACCOUNT = budget_account("k", window_id("month", NOW_US))


class Scripted(LocalCounters):
    """Is down, or busy reading for others, as often as the test says; records the reports."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = False
        self.busy = 0
        self.reported: list[Mapping[Account, Holding]] = []

    async def report(self, holdings: Mapping[Account, Holding]) -> Standing:
        if self.is_down:
            raise CountersDown("gone")
        self.reported.append(dict(holdings))
        return await super().report(holdings)

    async def lease(self, account: Account, *, limit: int, holding: Holding, need: int, want: int) -> Grant:
        if self.is_down:
            raise CountersDown("gone")
        return await super().lease(account, limit=limit, holding=holding, need=need, want=want)

    async def read_books(
        self,
        books: Books,
        *,
        is_urgent: bool = False,
        of_end_users: AccountBooks = no_end_users,
        corrections: Corrections = no_corrections,
    ) -> bool:
        if self.busy:
            self.busy -= 1
            return False
        return await super().read_books(books, is_urgent=is_urgent, of_end_users=of_end_users, corrections=corrections)


class Rig:
    def __init__(self, *, spent: int = 0, idle_reports: int = 120) -> None:
        self.counters = Scripted()
        self.treasury = Treasury(self.counters, idle_reports=idle_reports)
        self.admission = Admission(
            limits={"k": parse_limits({"budget_usd": "0.0000000001"})}, treasury=self.treasury, wait_seconds=0.0
        )
        self.spent = spent
        self.readings = 0
        self.fails = False
        self.hangs = False
        self.keeper = BudgetKeeper(self.treasury, self.read, busy_seconds=0.0)

    async def read(self) -> dict[Account, int]:
        if self.fails:
            raise OSError("no database")
        if self.hangs:
            await asyncio.Event().wait()
        self.readings += 1
        return {ACCOUNT: self.spent}


async def test_it_is_blind_from_a_reading_that_failed_until_one_that_did_not_whoever_made_it() -> None:
    rig = Rig(spent=5)
    await rig.keeper.start()
    for others in (False, True):
        rig.fails = True
        rig.treasury.wants_reading.set()
        await rig.keeper.step()
        assert rig.treasury.is_blind
        rig.fails = False
        if others:
            assert await rig.counters.read_books(rig.read)
            rig.counters.busy = 1
        rig.treasury.wants_reading.set()
        for _ in range(2):  # the first makes a reading, the next report tells its number
            await rig.keeper.step()
        assert not rig.treasury.is_blind


async def test_it_starts_with_a_reading_of_its_own_however_busy_others_are() -> None:
    rig = Rig(spent=95)
    rig.counters.busy = 3
    await rig.keeper.start()
    assert rig.readings == 1
    with pytest.raises(BudgetExhausted):
        await rig.admission.reserve("a", "k", 6, now_us=NOW_US)
    await rig.admission.reserve("b", "k", 5, now_us=NOW_US)


@pytest.mark.parametrize("what", ["is_down", "fails"])
async def test_it_starts_although_something_is_down(what: str, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    setattr(rig.counters if what == "is_down" else rig, what, True)
    await rig.keeper.start()
    assert not await rig.keeper.step()
    assert ("leases are spent" if what == "is_down" else "last known figures") in caplog.text
    setattr(rig.counters if what == "is_down" else rig, what, False)
    assert await rig.keeper.step()
    assert rig.readings == 1


def test_a_database_that_never_answers_does_not_keep_it_from_reporting(caplog: pytest.LogCaptureFixture) -> None:
    """After a minute without a report, what it holds would be leased to others."""

    async def scene() -> int:
        rig = Rig()
        await rig.keeper.start()
        rig.treasury.wants_reading.set()
        rig.hangs = True
        running = asyncio.create_task(rig.keeper.run())
        reported = len(rig.counters.reported)
        await asyncio.sleep(60)
        await end_tasks([running])
        return len(rig.counters.reported) - reported

    assert run(scene) > 1
    assert "figures stay in force: the database did not answer within 20 s" in caplog.text


async def test_while_it_is_down_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.counters.is_down = True
    for _ in range(3):
        await rig.keeper.step()
    assert caplog.text.count("leases are spent") == 1
    assert rig.keeper.is_down
    rig.counters.is_down = False
    await rig.keeper.step()
    assert not rig.keeper.is_down


async def test_while_the_books_cannot_be_read_it_is_said_once_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line per second used to fill the log's disk in an outage."""
    rig = Rig()
    rig.fails = True
    for _ in range(3):
        assert not await rig.keeper.step()
    assert caplog.text.count("figures stay in force") == 1
    rig.fails = False
    for _ in range(3):
        assert await rig.keeper.step()
    assert caplog.text.count("can be read again") == 1


async def test_a_request_that_waits_for_a_reading_gets_it_at_once() -> None:
    rig = Rig()
    await rig.keeper.start()
    running = asyncio.create_task(rig.keeper.run())
    rig.treasury.wants_reading.set()
    await until(lambda: rig.readings >= 2)
    await end_tasks([running])


async def test_at_the_end_it_gives_back_what_was_not_spent() -> None:
    rig = Rig()
    await rig.keeper.start()
    await rig.admission.reserve("a", "k", 10, now_us=NOW_US)
    rig.admission.settle("a", 4)
    await rig.keeper.stop()
    assert rig.counters.reported[-1] == {ACCOUNT: Holding(4, 4, unsent=4, as_of=1)}
    rig.counters.is_down = True
    await rig.keeper.stop()


async def test_a_lease_that_nobody_wants_for_a_minute_goes_back() -> None:
    rig = Rig(idle_reports=3)
    await rig.keeper.start()
    await rig.admission.reserve("a", "k", 1, now_us=NOW_US)
    rig.admission.settle("a", 0)
    held = [(await rig.keeper.step(), dict(rig.counters.reported[-1]))[1] for _ in range(5)]
    assert held[0][ACCOUNT].total > 0
    assert held[-1] == {}, "and the account is forgotten"


async def test_what_reached_the_database_is_told_to_admission_and_what_did_not_is_not() -> None:
    entry = make_entry(1)
    rig = Rig()
    await rig.keeper.start()
    await rig.admission.reserve(entry.intent.request_id, "k", 50, now_us=NOW_US)
    rig.admission.settle(entry.intent.request_id, 50)

    class Sink:
        fails = True

        async def insert(self, batch: Batch) -> int:
            if self.fails:
                raise OSError("no database")
            return len(batch)

    sink = Sink()
    counting = CountingSink(sink, rig.admission)
    purse = rig.treasury.purse(ACCOUNT, 100)
    assert purse.holding.unsent == 50
    for _ in range(2):
        with pytest.raises(OSError, match="no database"):
            await counting.insert(Batch.of([entry]))
    assert (purse.unshipped, purse.shipped_amount, purse.holding.unsent) == (50, 0, 0)
    sink.fails = False
    assert await counting.insert(Batch.of([entry])) == 1
    assert (purse.unshipped, purse.shipped_amount) == (0, 50)
    await rig.keeper.step()
    await rig.counters.read_books(rig.read)
    await rig.keeper.step()
    assert purse.holding.spent == 0


async def test_a_charge_the_books_show_and_the_worker_holds_refuses_nobody() -> None:
    """It reached the database between the last report and the reading, so it is counted twice until the next report."""
    entry = make_entry(1)
    rig = Rig()
    rig.admission.wait_seconds = 30.0
    await rig.keeper.start()
    await rig.admission.reserve(entry.intent.request_id, "k", 50, now_us=NOW_US)
    rig.admission.settle(entry.intent.request_id, 50)
    rig.admission.sending([entry.intent.request_id])
    rig.spent = 50
    await rig.counters.read_books(rig.read)
    rig.admission.shipped([entry.intent.request_id])
    asking = asyncio.create_task(rig.admission.reserve("next", "k", 50, now_us=NOW_US))
    running = asyncio.create_task(rig.keeper.run())
    await asking
    rig.admission.settle("next", 50)
    with pytest.raises(BudgetExhausted):
        await rig.admission.reserve("one more", "k", 1, now_us=NOW_US)
    await end_tasks([running])


async def test_what_an_earlier_life_settled_and_did_not_ship_is_held_until_the_books_show_it(tmp_path: Path) -> None:
    """The database was down for so long that starting cannot wait for all of it to be shipped."""
    cost = 40
    entries = [
        make_entry(
            number,
            intent=make_intent(number, key_id="k", accepted_at_us=NOW_US),
            cost=Cost(input_pico_usd=cost, list_pico_usd=cost),
        )
        for number in (1, 2)
    ]
    journal = Journal.open(tmp_path, on_failure=raise_it, segment_bytes=1 << 20)
    for entry in entries:
        journal.intend(entry.intent)
        await journal.settle(entry)
    rig = Rig()
    await carry_unshipped(journal, rig.admission)
    await rig.keeper.start()
    assert rig.counters.reported[-1] == {ACCOUNT: Holding(80, 80, unsent=80, as_of=1)}
    with pytest.raises(BudgetExhausted):
        await rig.admission.reserve("a", "k", 21, now_us=NOW_US)
    await rig.admission.reserve("b", "k", 20, now_us=NOW_US)

    class Database:
        async def insert(self, batch: Batch) -> int:
            rig.spent += cost * len(batch)
            return len(batch)

    assert await Shipper(journal, CountingSink(Database(), rig.admission)).drain(300)
    for _ in range(2):
        await rig.keeper.step()
        await rig.counters.read_books(rig.read)
    await rig.keeper.step()
    assert rig.treasury.purse(ACCOUNT, 100).holding == Holding(20, 0, 0, rig.readings)
    await journal.aclose()


def raise_it(error: OSError) -> None:
    raise error


async def test_entries_of_a_version_to_come_that_wait_in_the_journal_are_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal.open(tmp_path, on_failure=raise_it, segment_bytes=1 << 20)
    journal.intend(make_intent())
    await journal.settle(make_entry())
    monkeypatch.setattr("gateway.ledger.batch.DECODER", msgspec.msgpack.Decoder(Cost))
    with pytest.raises(StateError, match="start the version that wrote them"):
        await carry_unshipped(journal, Admission())
