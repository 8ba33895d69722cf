"""What a journal finds when it is opened again: orphans, torn tails, damage in the middle."""

import errno
import os
from pathlib import Path

import pytest

from gateway.ledger.disk import LocalDisk, LocalFile
from gateway.ledger.entry import Status
from gateway.ledger.journal import Journal
from gateway.ledger.record import Framing, Kind
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
    # Request 2 has lost its settlement but not its intent, so it is an orphan.
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
    with path.open("r+b") as file:  # the settlement of 2 and, if its head is torn, all of 3
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


@pytest.mark.parametrize("hit", [{2, 39}, {2, 20}, {2, 15, 27, 39}])
async def test_damage_in_several_places_costs_the_records_that_it_hit(tmp_path: Path, hit: set[int]) -> None:
    """As after a loss of power, which tears the last record, on a disk with a bad sector."""
    journal = open_journal(tmp_path)
    ends: list[int] = []
    for number in range(40):
        await settle_one(journal, number)
        ends.append(int(journal.gauges()["journal_bytes"]))
    await journal.aclose()
    with segments_of(tmp_path)[0].open("r+b") as file:
        for number in hit:
            file.seek(ends[number] - 40)
            file.write(b"x")
    again = open_journal(tmp_path)
    answered = [entry.intent.request_id for entry in read_all(again) if entry.status is Status.completed]
    assert answered == [request_id(number) for number in range(40) if number not in hit]
    assert set(again.recovered.orphans) == set(map(request_id, hit))
    await again.aclose()
    third = open_journal(tmp_path)
    assert third.recovered.discarded_bytes == third.recovered.rescued_records == 0
    assert third.recovered.settled_entries == 40
    await third.aclose()


class HalfReadable(LocalFile):
    """Behaves as Linux does with a file of which the disk cannot read one page: reads up to it, then errors."""

    bad = 0

    def read(self, offset: int, length: int) -> bytes:
        if offset == self.bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(offset, min(length, self.bad - offset) if offset < self.bad else length)

    def write(self, offset: int, content: bytes) -> None:
        super().write(offset, content)
        if offset <= self.bad < offset + len(content):
            self.bad = self.size


@pytest.mark.parametrize("bad_page", [1, 15])
async def test_a_page_that_the_disk_cannot_read_costs_the_records_in_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad_page: int
) -> None:
    journal = open_journal(tmp_path)
    begins: list[int] = []
    for number in range(16):
        begins.append(int(journal.gauges()["journal_bytes"]))
        await settle_one(journal, number)
    end = int(journal.gauges()["journal_bytes"])
    await journal.aclose()
    monkeypatch.setattr(HalfReadable, "bad", bad_page * 4096)
    monkeypatch.setattr(LocalDisk, "open", lambda disk, name: HalfReadable(tmp_path / name))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    again = open_journal(tmp_path)
    monkeypatch.undo()
    hit = {n for n in range(16) if begins[n] < (bad_page + 1) * 4096 and [*begins, end][n + 1] > bad_page * 4096}
    assert bool(hit) == (bad_page == 1)
    whole = [request_id(number) for number in range(16) if number not in hit]
    assert [entry.intent.request_id for entry in read_all(again) if entry.status is Status.completed] == whole
    assert bool(again.recovered.discarded_bytes) == bool(again.recovered.rescued_records) == bool(hit)
    await settle_one(again, 9)
    await again.aclose()


async def test_a_disk_that_reads_nothing_any_more_is_no_empty_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = open_journal(tmp_path, segment_bytes=1 << 20)
    await settle_one(journal, 1)
    await journal.aclose()

    def refuse(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(LocalFile, "read", refuse)
    with pytest.raises(OSError, match="Input/output"):
        open_journal(tmp_path, segment_bytes=1 << 20)
    monkeypatch.undo()
    again = open_journal(tmp_path, segment_bytes=1 << 20)
    assert len(read_all(again)) == 1
    await again.aclose()


@pytest.mark.parametrize("copy", ["0000000000000001 (copy).seg", "copy of 0000000000000001.seg"])
async def test_an_operators_copy_of_a_segment_is_none(tmp_path: Path, copy: str) -> None:
    journal = open_journal(tmp_path)
    await settle_one(journal, 1)
    await journal.aclose()
    (tmp_path / copy).write_bytes(segments_of(tmp_path)[0].read_bytes())
    again = open_journal(tmp_path)
    assert again.recovered.settled_entries == len(read_all(again)) == 1
    await again.aclose()


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
