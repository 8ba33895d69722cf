"""What an earlier process shipped is not shipped again, except if it is too young to have been deleted since."""

from pathlib import Path

import pytest

from gateway.ledger.disk import LocalDisk
from gateway.ledger.journal import Journal
from gateway.ledger.shipped_before import SURELY_KEPT_US
from tests.unit.gateway.ledger.builders import make_entry, make_intent, request_id
from tests.unit.gateway.ledger.journals import SMALL, fail, open_journal, read_all, segments_of, settle_one


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


async def test_the_note_of_what_is_shipped_moves_with_what_a_repair_moves(tmp_path: Path) -> None:
    first = open_journal(tmp_path)
    ends: list[int] = []
    for number in range(4):
        await settle_one(first, number)
        ends.append(int(first.gauges()["journal_bytes"]))
    _, end = first.read_settled(first.shipped)
    await first.mark_shipped(end, 4)
    await settle_one(first, 5)
    await first.aclose()
    with segments_of(tmp_path)[0].open("r+b") as file:  # the settlement of 1, which becomes an orphan
        file.seek(ends[1] - 40)
        file.write(b"x")

    for _ in range(2):
        again = open_journal(tmp_path)
        assert again.gauges()["unshipped_entries"] == again.recovered.settled_entries == 2
        assert [entry.intent.request_id for entry in read_all(again)] == [request_id(5), request_id(1)]
        await again.aclose()


@pytest.mark.parametrize("behind_us", [SURELY_KEPT_US // 2, 20_000 * SURELY_KEPT_US])
async def test_a_clock_that_is_behind_at_the_start_makes_nothing_young(tmp_path: Path, behind_us: int) -> None:
    first = open_journal(tmp_path)
    await settle_one(first, 1)
    _, end = first.read_settled(first.shipped)
    await first.mark_shipped(end, 1)
    await first.aclose()
    now_us = make_intent(1).accepted_at_us - behind_us
    again = Journal(LocalDisk(tmp_path), on_failure=fail, segment_bytes=SMALL, now_us=lambda: now_us)
    assert again.gauges()["unshipped_entries"] == 0
    assert read_all(again) == []
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
