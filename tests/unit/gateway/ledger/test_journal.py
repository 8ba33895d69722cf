"""The journal in a real directory and on a simulated disk that fills up or fails."""

import asyncio
import os
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.errors import LedgerUnavailable
from gateway.ledger.journal import Journal
from gateway.ledger.sync_watch import SyncWatch
from gateway.ledger.syncing import QueueSyncer
from tests.faults.ledger.power_loss import SteppedQueue
from tests.simulated_disk import SimulatedDisk
from tests.unit.gateway.ledger.builders import make_checkpoint, make_entry, make_intent, request_id
from tests.unit.gateway.ledger.journals import (
    SMALL,
    fail,
    open_journal,
    read_all,
    segments_of,
    settle_once_there_is_room,
    settle_one,
)
from tests.waiting import until


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = open_journal(tmp_path, segment_bytes=1 << 20)
    yield opened
    await opened.aclose()


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


async def test_segments_are_freed_when_shipped_and_an_open_intent_moves_forward(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.intend(make_intent(9_999))
    journal.checkpoint(make_checkpoint(9_999))
    for number in range(300):
        await settle_once_there_is_room(journal, number)
    assert len(segments_of(tmp_path)) > 3
    segments_of(tmp_path)[1].unlink()  # by somebody who needs room
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
    assert read_all(journal) == [make_entry(1)]  # asking wrote nothing

    number = 2
    while journal.refusal() is None:
        await settle_one(journal, number)
        number += 1
    assert "disk is " in str(journal.refusal())
    disk.free_bytes = SMALL
    await until(lambda: journal.refusal() is None)  # while no requests arrive
    journal.intend(make_intent(70_000))

    await journal.aclose()
    assert journal.refusal() == "The journal is closed."


async def test_who_settles_while_it_is_closed_is_refused_and_does_not_wait_for_ever(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    for number in (1, 2):
        journal.intend(make_intent(number))
    in_time = asyncio.create_task(journal.settle(make_entry(1)))
    await asyncio.sleep(0)
    closing = asyncio.create_task(journal.aclose())
    await asyncio.sleep(0)
    with pytest.raises(LedgerUnavailable, match="The journal is closed"):
        await journal.settle(make_entry(2))
    await asyncio.gather(in_time, closing)


@pytest.mark.parametrize("is_readable", [True, False])
async def test_who_cannot_read_what_is_to_be_shipped_says_what_helps_and_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_readable: bool
) -> None:
    journal = open_journal(tmp_path)
    await settle_one(journal, 1)
    await settle_one(journal, 2)
    if is_readable:
        with segments_of(tmp_path)[0].open("r+b") as file:
            file.seek(int(journal.gauges()["journal_bytes"]) - 40)
            file.write(b"?")
    else:
        monkeypatch.setattr(os, "pread", lambda *_: os.read(-1, 1))  # pyright: ignore[reportUnknownLambdaType]
    with pytest.raises(OSError, match="restart the gateway"):
        read_all(journal)
    monkeypatch.undo()
    await journal.aclose()
    again = open_journal(tmp_path)
    assert make_entry(1) in read_all(again)
    assert again.recovered.orphans == ((request_id(2),) if is_readable else ())
    assert len(read_all(again)) == 2
    await again.aclose()


async def test_a_disk_that_does_not_answer_is_told_and_takes_nothing_new_until_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = SteppedQueue()
    journal = Journal(
        SimulatedDisk(random.Random(1)),
        on_failure=fail,
        segment_bytes=SMALL,
        syncer=QueueSyncer(queue),
        watch=SyncWatch(look_seconds=0.001),
    )
    for number in (1, 2):
        journal.intend(make_intent(number))
    first = asyncio.create_task(journal.settle(make_entry(1)))
    await until(lambda: "does not answer" in str(journal.refusal()))
    with pytest.raises(LedgerUnavailable, match="does not answer"):
        journal.intend(make_intent(3))
    second = asyncio.create_task(journal.settle(make_entry(2)))  # was accepted, so it waits
    assert journal.gauges()["sync_seconds"] > 0
    assert ["has not answered" in record.getMessage() for record in caplog.records] == [True]
    queue.step()
    await first
    assert journal.refusal() is None
    assert "answers again" in caplog.text
    await asyncio.sleep(0)
    queue.step()
    await second
    closing = asyncio.create_task(journal.aclose())
    while not closing.done():
        queue.step()
        await asyncio.sleep(0)


async def test_a_disk_with_room_is_not_called_full_when_no_more_files_can_be_opened() -> None:
    disk = SimulatedDisk(random.Random(1))
    journal = Journal(disk, on_failure=fail, segment_bytes=SMALL)
    disk.refuses_files = True
    number = 0
    while journal.refusal() is None:
        await settle_one(journal, number)
        number += 1
    await until(lambda: journal.refusal() == "The journal cannot be written: Too many open files")
    disk.refuses_files = False
    await until(lambda: journal.refusal() is None)
    await journal.aclose()


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
