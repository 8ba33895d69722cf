"""The event loop uses a possibly slow file: no other request waits for it, and no work piles up."""

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.errors import StoreDown
from gateway.kept_answers.record_store import Change
from gateway.storage.turns.disk_turns import DiskTurns
from gateway.storage.turns.turn_file import TurnFile
from tests.hand_clock import HandClock
from tests.waiting import until


class Slow(TurnFile):
    """A file whose disk responds only once `goes_on` is set."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, max_bytes=32 << 20, longest_seconds=60)
        self.goes_on = threading.Event()
        self.asked: list[str] = []

    def get(self, name: str, seconds: float | None) -> bytes | None:
        self.asked.append(name)
        self.goes_on.wait()
        return super().get(name, seconds)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Slow]:
    """Ends the file's thread whatever happens in the test, since the process would wait for it."""
    made = Slow(tmp_path / "turns.db")
    yield made
    made.goes_on.set()


async def test_a_disk_that_does_not_answer_is_given_up_and_asked_again_when_it_does(file: Slow) -> None:
    clock = HandClock()
    turns = DiskTurns(file, memory_bytes=0, patience_seconds=0.2, monotonic=clock)
    turns.open()
    asking = [asyncio.create_task(turns.get(name, 60)) for name in "abc"]
    for one in asking:
        with pytest.raises(StoreDown, match=r"took longer than 0\.2 s"):
            await one
    while not file.asked:  # on a busy machine they would give up before their turn
        with pytest.raises(StoreDown):
            await turns.get("a", 60)
    clock.now += 0.3
    with pytest.raises(StoreDown, match="does not respond"):
        await turns.put("d", b"turn", 60)
    file.goes_on.set()
    await until(lambda: is_kept(turns, "d"))
    assert set(file.asked) == {"a", "d"}, "who had given up was not asked for"
    await turns.aclose()


async def is_kept(turns: DiskTurns, name: str) -> bool:
    """Whether it stores a turn now, and returns it."""
    try:
        await turns.put(name, b"turn", 60)
        return await turns.get(name, 60) == b"turn"
    except StoreDown:
        return False


async def test_what_was_read_or_kept_lately_is_read_in_memory_though_the_disk_is_silent(file: Slow) -> None:
    file.goes_on.set()
    turns = DiskTurns(file, memory_bytes=1 << 20, patience_seconds=60)
    await turns.put("a", b"turn", 60)
    file.goes_on.clear()
    assert await turns.get("a", 60) == b"turn"
    await turns.aclose()

    file.goes_on.set()
    turns = DiskTurns(file, memory_bytes=1 << 20, patience_seconds=60)
    assert await turns.get("a", 60) == b"turn"
    file.goes_on.clear()
    assert await turns.get("a", 60) == b"turn"
    assert file.asked == ["a"]
    await turns.aclose()


async def test_who_reads_in_memory_gives_time_in_the_file_too(tmp_path: Path) -> None:
    clock = HandClock()
    file = TurnFile(tmp_path / "turns.db", max_bytes=1 << 20, longest_seconds=60, now=clock, unstepped=clock)
    turns = DiskTurns(file, memory_bytes=1 << 20, patience_seconds=60, monotonic=clock)
    await turns.put("a", b"turn", 60)
    await turns.put("b", b"turn", 60)
    clock.now += 50
    assert await turns.get("a", 60) == b"turn"
    clock.now += 50
    await turns.aclose()
    assert (file.get("a", 60), file.get("b", 60)) == (b"turn", None)
    file.close()


async def test_what_is_deleted_while_somebody_reads_it_is_not_in_memory_after_that(file: Slow) -> None:
    turns = DiskTurns(file, memory_bytes=1 << 20, patience_seconds=60)
    file.put("a", b"turn", 60)
    file.close()
    reading = asyncio.create_task(turns.get("a", 60))
    deleting = asyncio.create_task(turns.delete("a"))
    await asyncio.sleep(0.05)
    file.goes_on.set()
    assert (await reading, await deleting) == (b"turn", True)
    assert await turns.get("a", 60) is None
    await turns.aclose()


class Counting(TurnFile):
    """Counts how often its log is emptied; the first time waits until `goes_on` is set."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, max_bytes=32 << 20, longest_seconds=60)
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.times = 0

    def empty_log(self) -> None:
        self.times += 1
        self.begun.set()
        self.goes_on.wait()
        super().empty_log()


def everything_in(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in folder.iterdir())


async def test_many_who_delete_at_once_share_the_syncs_and_each_hears_of_it_after_them(tmp_path: Path) -> None:
    file = Counting(tmp_path / "turns.db")
    turns = DiskTurns(file, patience_seconds=60)
    values = {f"{number}": os.urandom(16) for number in range(50)}
    for name, value in values.items():
        await turns.put(name, value, 60)
    first = asyncio.create_task(turns.delete("0"))
    await asyncio.to_thread(file.begun.wait)
    others = [asyncio.create_task(turns.delete(name)) for name in values if name != "0"]
    missing = asyncio.create_task(turns.delete("none"))
    await asyncio.sleep(0.05)
    assert not any(one.done() for one in (first, *others))
    file.goes_on.set()
    assert all([await first, *[await one for one in others]])
    assert not await missing
    assert 2 <= file.times < 10
    left = everything_in(tmp_path)
    assert not any(value in left for value in values.values())
    await turns.aclose()


async def test_its_log_is_emptied_behind_whoever_made_it_long(tmp_path: Path) -> None:
    turns = DiskTurns(TurnFile(tmp_path / "turns.db", max_bytes=32 << 20, longest_seconds=60), patience_seconds=60)
    for name in "abcdef":
        await turns.put(name, bytes(1 << 20), 60)
    await turns.get("a", 60)
    assert (tmp_path / "turns.db-wal").stat().st_size < 3 << 20
    await turns.aclose()


async def test_what_is_over_goes_in_one_call(tmp_path: Path) -> None:
    turns = DiskTurns(TurnFile(tmp_path / "turns.db", max_bytes=32 << 20, longest_seconds=60), patience_seconds=60)
    for number in range(120):
        await turns.put(f"{number}", bytes(10_000), 0.001)
    await asyncio.sleep(0.01)
    await turns.forget()
    assert (tmp_path / "turns.db").stat().st_size < 100_000
    await turns.aclose()


async def test_a_place_where_no_file_can_be_is_told_at_once(tmp_path: Path) -> None:
    turns = DiskTurns(TurnFile(tmp_path / "nowhere" / "turns.db", max_bytes=1 << 20, longest_seconds=60))
    with pytest.raises(StoreDown, match="nowhere"):
        turns.open()


async def test_after_its_end_it_is_down_and_all_is_in_one_file(tmp_path: Path) -> None:
    turns = DiskTurns(TurnFile(tmp_path / "turns.db", max_bytes=1 << 20, longest_seconds=60), patience_seconds=60)
    await turns.put("a", b"turn", 60)
    await turns.aclose()
    with pytest.raises(StoreDown, match="is stopping"):
        await turns.put("b", b"turn", 60)
    assert os.listdir(tmp_path) == ["turns.db"]


class Swapping(TurnFile):
    """Reads once `may_read` is set. Says when a swap or a deletion has begun, and ends it once `goes_on` is set."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, max_bytes=32 << 20, longest_seconds=60)
        self.may_read, self.has_begun, self.goes_on = threading.Event(), threading.Event(), threading.Event()

    def get(self, name: str, seconds: float | None) -> bytes | None:
        self.may_read.wait(60)
        return super().get(name, seconds)

    def swap(self, change: Change, seconds: float) -> bool:
        self.has_begun.set()
        self.goes_on.wait(60)
        return super().swap(change, seconds)

    def delete(self, name: str) -> bool:
        self.has_begun.set()
        self.goes_on.wait(60)
        return super().delete(name)


@pytest.mark.parametrize("new", [b"new", None])
async def test_who_leaves_while_a_value_changes_leaves_no_old_one_in_memory(tmp_path: Path, new: bytes | None) -> None:
    file = Swapping(tmp_path / "turns.db")
    turns = DiskTurns(file, memory_bytes=1 << 20, patience_seconds=60)
    file.put("a", b"old", 60)
    file.close()
    reading = asyncio.create_task(turns.get("a", 60))
    changing = asyncio.create_task(turns.delete("a") if new is None else turns.swap(Change("a", b"old", new), 60))
    for _ in range(5):  # until both are asked of the file
        await asyncio.sleep(0)
    file.may_read.set()
    assert file.has_begun.wait(60)  # blocks the loop: what was read has come, but its reader has not been told
    changing.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    file.goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await changing
    assert await reading == b"old"
    assert await turns.get("a", 60) == new
    await turns.aclose()
