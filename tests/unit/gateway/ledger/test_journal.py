"""The journal on a real directory and on a simulated disk that fills up or fails."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.errors import LedgerUnavailable
from gateway.ledger.disk import LocalDisk
from gateway.ledger.entry import Entry, Status
from gateway.ledger.journal import Journal
from gateway.ledger.record import Framing, Kind
from gateway.ledger.shipped_before import SURELY_KEPT_US
from tests.simulated_disk import SimulatedDisk
from tests.unit.gateway.ledger.builders import make_checkpoint, make_entry, make_intent, request_id

SMALL = 1 << 16
PATIENCE_SECONDS = 60


def fail(error: OSError) -> None:
    raise AssertionError(f"the journal stopped: {error}")


def open_journal(directory: Path, segment_bytes: int = SMALL) -> Journal:
    return Journal(LocalDisk(directory), on_failure=fail, segment_bytes=segment_bytes)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = open_journal(tmp_path, segment_bytes=1 << 20)
    yield opened
    await opened.aclose()


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
    """A segment may be on its way, in a thread."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                journal.intend(make_intent(number))
                break
            except LedgerUnavailable:
                await asyncio.sleep(0.005)
    await journal.settle(make_entry(number))


async def test_what_is_settled_is_read_back_in_order(journal: Journal) -> None:
    for number in range(20):
        await settle_one(journal, number)
    assert read_all(journal) == [make_entry(number) for number in range(20)]
    assert journal.gauges()["unshipped_entries"] == 20
    assert journal.gauges()["open_intents"] == 0


async def test_settlements_that_arrive_together_share_a_sync(journal: Journal) -> None:
    for number in range(50):
        journal.intend(make_intent(number))
    await asyncio.gather(*(journal.settle(make_entry(number)) for number in range(50)))
    assert journal.gauges()["syncs"] <= 3
    assert len(read_all(journal)) == 50


async def test_a_request_cannot_be_settled_twice_or_unintended(journal: Journal) -> None:
    await settle_one(journal, 1)
    with pytest.raises(ValueError, match="settled twice"):
        await journal.settle(make_entry(1))
    with pytest.raises(ValueError, match="no open intent"):
        await journal.settle(make_entry(2))


async def test_a_waiter_that_leaves_does_not_take_the_others_along(journal: Journal) -> None:
    journal.intend(make_intent(1))
    journal.intend(make_intent(2))
    leaving = asyncio.create_task(journal.settle(make_entry(1)))
    staying = asyncio.create_task(journal.settle(make_entry(2)))
    await asyncio.sleep(0)
    leaving.cancel()
    await staying
    assert len(read_all(journal)) == 2


async def test_the_dead_processes_requests_become_orphans_with_bounds(tmp_path: Path) -> None:
    first = open_journal(tmp_path)
    for number in (1, 2, 3):
        first.intend(make_intent(number))
    first.intend(make_intent(4, cost_bound_pico_usd=None, is_simulated=True))
    first.checkpoint(make_checkpoint(2, output_tokens=256, cost_so_far_pico_usd=160_000_000))
    await first.settle(make_entry(3))
    await first.aclose()

    second = open_journal(tmp_path)
    by_id = {entry.intent.request_id: entry for entry in read_all(second)}
    await second.aclose()
    assert second.recovered.orphans == (request_id(1), request_id(2), request_id(4))
    assert by_id[request_id(3)] == make_entry(3)
    bounds = [(by_id[request_id(n)].cost_lower_pico_usd, by_id[request_id(n)].cost_upper_pico_usd) for n in (1, 2, 4)]
    assert bounds == [(0, 255_000_000), (160_000_000, 255_000_000), (0, None)]
    for number in (1, 2, 4):
        assert by_id[request_id(number)].status is Status.orphaned
        assert by_id[request_id(number)].cost is None
    assert by_id[request_id(2)].output_tokens == 256
    assert [by_id[request_id(n)].is_simulated for n in (1, 2, 4)] == [False, False, True]

    third = open_journal(tmp_path)
    assert third.recovered.orphans == ()
    assert third.recovered.settled_entries == 4
    await third.aclose()


async def test_segments_are_freed_when_shipped_and_an_open_intent_moves_forward(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.intend(make_intent(9_999))
    journal.checkpoint(make_checkpoint(9_999))
    for number in range(300):
        await settle_once_there_is_room(journal, number)
    assert len(segments_of(tmp_path)) > 3
    shipped = 0
    position = journal.shipped
    while True:
        some, end = journal.read_settled(position)
        if end == position:
            break
        await journal.mark_shipped(end, len(some))
        position, shipped = end, shipped + len(some)
    assert shipped == 300
    assert len(segments_of(tmp_path)) <= 2
    assert journal.gauges()["unshipped_seconds"] == 0
    await journal.aclose()

    again = open_journal(tmp_path)
    assert again.recovered.orphans == (request_id(9_999),)
    orphan = read_all(again)[-1]
    assert orphan.cost_lower_pico_usd == make_checkpoint().cost_so_far_pico_usd
    await again.aclose()


@pytest.mark.parametrize("seed", range(8))
async def test_an_open_intent_that_moved_forward_is_on_the_disk_before_its_old_segment_goes(seed: int) -> None:
    disk = SimulatedDisk(random.Random(seed))
    journal = Journal(disk, on_failure=lambda _: None, segment_bytes=SMALL)
    [first] = disk.names()
    journal.intend(make_intent(9_999))
    for number in range(150):
        await settle_once_there_is_room(journal, number)
    some, end = journal.read_settled(journal.shipped)
    while end != journal.shipped:
        await journal.mark_shipped(end, len(some))
        some, end = journal.read_settled(end)
    assert first not in disk.names()
    disk.lose_power()
    await journal.aclose()
    disk.restart()
    again = Journal(disk, on_failure=fail, segment_bytes=SMALL)
    assert again.recovered.orphans == (request_id(9_999),)
    await again.aclose()


async def test_where_no_thread_can_be_started_any_more_there_is_a_next_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = open_journal(tmp_path)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        for number in range(400):
            await settle_once_there_is_room(journal, number)
    assert len(segments_of(tmp_path)) > 2
    await journal.aclose()


async def test_a_full_disk_refuses_intents_and_settles_everything_accepted() -> None:
    disk = SimulatedDisk(random.Random(1), free_bytes=SMALL)
    journal = Journal(disk, on_failure=fail, segment_bytes=SMALL)
    accepted: list[int] = []
    while True:
        try:
            journal.intend(make_intent(len(accepted)))
        except LedgerUnavailable:
            break
        accepted.append(len(accepted))
    await asyncio.gather(*(journal.settle(make_entry(number)) for number in accepted))
    assert len(accepted) > 5
    assert len(read_all(journal)) == len(accepted)

    # Once there is room again the same process goes on.
    while True:
        try:
            await settle_one(journal, len(accepted))
        except LedgerUnavailable:
            break
        accepted.append(len(accepted))
    disk.free_bytes = 10 * SMALL
    await settle_once_there_is_room(journal, 70_000)
    await journal.aclose()


async def test_who_asks_whether_it_takes_intents_hears_why_not_until_it_does_again() -> None:
    disk = SimulatedDisk(random.Random(1), free_bytes=SMALL)
    journal = Journal(disk, on_failure=fail, segment_bytes=SMALL)
    assert journal.refusal() is None
    await settle_one(journal, 1)

    disk.is_powered = False
    assert journal.refusal() == "The journal cannot be written: no power"
    disk.restart()
    assert journal.refusal() is None
    assert read_all(journal) == [make_entry(1)]  # asking left nothing

    number = 2
    while journal.refusal() is None:
        await settle_one(journal, number)
        number += 1
    assert "disk is " in str(journal.refusal())
    disk.free_bytes = SMALL
    async with asyncio.timeout(PATIENCE_SECONDS):
        while journal.refusal() is not None:  # nobody sends a request meanwhile
            await asyncio.sleep(0.005)
    journal.intend(make_intent(70_000))

    await journal.aclose()
    assert journal.refusal() == "The journal is closed."


async def test_a_failed_sync_stops_everything_and_is_not_repeated() -> None:
    disk = SimulatedDisk(random.Random(1))
    told: list[OSError] = []
    journal = Journal(disk, on_failure=told.append, segment_bytes=SMALL)
    for number in range(5):
        journal.intend(make_intent(number))
    disk.fail_sync_at = disk.syncs + 1
    results = await asyncio.gather(*(journal.settle(make_entry(n)) for n in range(5)), return_exceptions=True)
    assert [type(result) for result in results] == [LedgerUnavailable] * 5
    assert len(told) == 1
    syncs = disk.syncs
    with pytest.raises(LedgerUnavailable, match="restart"):
        journal.intend(make_intent(6))
    with pytest.raises(LedgerUnavailable):
        await journal.settle(make_entry(1))
    assert disk.syncs == syncs
    assert "restart" in str(journal.refusal())
    await journal.aclose()


async def test_a_sync_that_fails_while_closing_is_told_and_the_rest_is_closed() -> None:
    disk = SimulatedDisk(random.Random(1))
    told: list[OSError] = []
    journal = Journal(disk, on_failure=told.append, segment_bytes=SMALL)
    journal.intend(make_intent(1))
    disk.fail_sync_at = disk.syncs + 1
    await journal.aclose()
    assert len(told) == 1
    with pytest.raises(LedgerUnavailable):
        journal.intend(make_intent(2))
    await journal.aclose()
    assert len(told) == 1


async def test_a_torn_tail_is_dropped_and_zeroed(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    await settle_one(journal, 1)
    await settle_one(journal, 2)
    end = int(journal.gauges()["journal_bytes"])
    await journal.aclose()
    path = segments_of(tmp_path)[0]
    with path.open("r+b") as file:
        file.seek(end - 3)
        file.write(b"xyz" + b"\x55" * 1_000)
    again = open_journal(tmp_path)
    assert again.recovered.discarded_bytes > 1_000
    # Request 2 lost its settlement but not its intent: it is an orphan now.
    assert [entry.status for entry in read_all(again)] == [Status.completed, Status.orphaned]
    assert b"\x55" * 8 not in path.read_bytes()
    await again.aclose()


@pytest.mark.parametrize("is_head_torn", [False, True])
async def test_what_was_answered_and_stands_behind_damage_is_kept_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_head_torn: bool
) -> None:
    journal = open_journal(tmp_path)
    ends: list[int] = []
    for number in range(6):
        await settle_one(journal, number)
        ends.append(int(journal.gauges()["journal_bytes"]))
    journal.intend(make_intent(6))
    await journal.aclose()
    path = segments_of(tmp_path)[0]
    with path.open("r+b") as file:  # the settlement of 2, and where its head is torn all of 3
        file.seek(ends[2] - 40)
        file.write(bytes(ends[3] - ends[2]) if is_head_torn else b"x")
    again = Journal.open(tmp_path, on_failure=fail, segment_bytes=SMALL)
    left = [(entry.intent.request_id, entry.status) for entry in read_all(again)]
    lost = [3] if is_head_torn else []
    answered = [(request_id(number), Status.completed) for number in (0, 1, 3, 4, 5) if number not in lost]
    assert left == [*answered, (request_id(2), Status.orphaned), (request_id(6), Status.orphaned)]
    assert "no whole records" in caplog.text
    await settle_one(again, 7)
    await again.aclose()
    third = open_journal(tmp_path)
    assert third.recovered.discarded_bytes == third.recovered.rescued_records == 0
    assert third.recovered.settled_entries == len(left) + 1
    await third.aclose()


async def test_a_prepared_segment_that_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    def used() -> int:
        return int(journal.gauges()["journal_bytes"])

    journal, number = open_journal(tmp_path), 0
    await settle_once_there_is_room(journal, number)
    pair = used()
    while SMALL - used() >= 3 * pair:
        number += 1
        await settle_once_there_is_room(journal, number)
    opened: list[str] = []
    while SMALL - used() >= pair:
        number += 1
        journal.intend(make_intent(number))
        opened.append(request_id(number))
    assert len(opened) > 2, "their settlements need the prepared segment"
    await journal.aclose()
    with segments_of(tmp_path)[1].open("r+b") as file:
        file.truncate(0)
    again = open_journal(tmp_path)
    assert again.recovered.orphans == tuple(opened)
    await again.aclose()


async def test_what_a_caller_wrote_into_a_torn_record_is_none(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    await settle_one(journal, 1)
    begin = int(journal.gauges()["journal_bytes"])
    await journal.aclose()
    forged = Framing().frame(1, Kind.INTENT, request_id(9), b"forged")
    with segments_of(tmp_path)[0].open("r+b") as file:
        file.seek(begin)
        file.write(Framing().frame(1, Kind.INTENT, request_id(2), b"said: " + forged + b" and more")[1:])
    again = open_journal(tmp_path)
    assert again.recovered.orphans == ()
    assert again.recovered.rescued_records == 0
    await again.aclose()


@pytest.mark.parametrize("ahead", [1_000, (1 << 20) - 1, 1 << 20, 2 << 20, (3 << 20) - 5_000])
async def test_what_is_left_far_behind_the_last_record_is_zeroed_too(tmp_path: Path, ahead: int) -> None:
    journal = open_journal(tmp_path, segment_bytes=3 << 20)
    await settle_one(journal, 1)
    end = int(journal.gauges()["journal_bytes"])
    await journal.aclose()
    path = segments_of(tmp_path)[0]
    with path.open("r+b") as file:
        file.seek(end + ahead)
        file.write(b"x")
    again = open_journal(tmp_path, segment_bytes=3 << 20)
    await again.aclose()
    assert again.recovered.discarded_bytes == ahead + 1
    assert not any(path.read_bytes()[end:])


async def test_what_was_shipped_and_is_old_is_not_shipped_again_by_the_next_process(tmp_path: Path) -> None:
    first = open_journal(tmp_path)
    for number in range(4):
        await settle_one(first, number)
    first.intend(make_intent(4))
    _, end = first.read_settled(first.shipped)
    await first.mark_shipped(end, 4)
    await settle_one(first, 5)
    await first.aclose()

    again = open_journal(tmp_path)
    assert again.gauges()["unshipped_entries"] == again.recovered.settled_entries == 2
    assert [entry.intent.request_id for entry in read_all(again)] == [request_id(5), request_id(4)]
    await again.aclose()


async def test_what_is_younger_than_what_any_database_forgets_is_shipped_again(tmp_path: Path) -> None:
    first = open_journal(tmp_path)
    moments = [make_intent(0).accepted_at_us + day * SURELY_KEPT_US for day in (0, 1, 2)]
    for number, at_us in enumerate(moments):
        first.intend(make_intent(number, accepted_at_us=at_us))
        await first.settle(make_entry(number, intent=make_intent(number, accepted_at_us=at_us)))
    _, end = first.read_settled(first.shipped)
    await first.mark_shipped(end, 3)
    await first.aclose()

    again = Journal(LocalDisk(tmp_path), on_failure=fail, segment_bytes=SMALL, now_us=lambda: moments[2])
    assert [entry.intent.request_id for entry in read_all(again)] == [request_id(1), request_id(2)]
    assert again.gauges()["unshipped_entries"] == 2
    await again.aclose()


@pytest.mark.parametrize("note", [b"", b"0000", b"two words", b"\xff", b"0000000000000001 0000000000000100\n"])
async def test_a_note_that_is_not_of_this_journal_counts_for_nothing(tmp_path: Path, note: bytes) -> None:
    first = open_journal(tmp_path)
    await settle_one(first, 1)
    await first.aclose()
    LocalDisk(tmp_path).note(note)
    again = open_journal(tmp_path)
    assert len(read_all(again)) == 1
    await again.aclose()
