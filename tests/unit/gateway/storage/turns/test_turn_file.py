"""Kept responses in a file: deleted data is overwritten, expired data is removed, and the file stays within its
limit."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.errors import StoreDown
from gateway.kept_answers.record_store import Change
from gateway.storage.turns.turn_file import FIRST_OF_OWNER, FORGOTTEN_AT_ONCE, LEAST_FREE_BYTES, UNTIDY_PAGES, TurnFile
from tests.hand_clock import HandClock

MEGABYTE = 1 << 20
DAY = 86_400.0


class Disk:
    """Turn files on a disk with limited space, with clocks set by the test."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "turns.db"
        self.now, self.unstepped = HandClock(1e9), HandClock(5.0)
        self.free_bytes = 1 << 40
        self.opened: list[TurnFile] = []

    def file(self, *, max_bytes: int = MEGABYTE, longest_seconds: float = DAY) -> TurnFile:
        file = TurnFile(
            self.path,
            max_bytes=max_bytes,
            longest_seconds=longest_seconds,
            now=self.now,
            unstepped=self.unstepped,
            free_bytes=lambda _: self.free_bytes,
        )
        self.opened.append(file)
        return file

    def wait(self, seconds: float) -> None:
        self.now.now += seconds
        self.unstepped.now += seconds

    def bytes_of_it(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.path.parent.iterdir())

    def ends(self) -> dict[str, float]:
        """When each expires, in seconds from now."""
        with closing(sqlite3.connect(self.path)) as other:
            return {
                name: until / 1000 - self.now() for name, until in other.execute("SELECT name, until_ms FROM turns")
            }


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    for file in disk.opened:
        file.close()


def test_a_turn_outlives_whoever_kept_it_and_its_time_goes_on_meanwhile(disk: Disk) -> None:
    file = disk.file()
    file.put("a", b"turn", 60)
    file.put("b", b"turn", 100)
    file.close()
    disk.wait(61)
    file = disk.file()
    assert (file.get("a", 60), file.get("b", 60)) == (None, b"turn")


def test_what_is_deleted_or_over_or_replaced_is_in_no_file_any_more(disk: Disk) -> None:
    file = disk.file(max_bytes=4 * MEGABYTE)
    kept = {name: os.urandom(8) for name in ("deleted", "over", "replaced", "tidied", "stays")}
    for name, value in kept.items():
        file.put(name, 2500 * value, 60 if name == "over" else DAY)
    file.tidy()
    file.put("tidied", b"another", DAY)
    file.put("replaced", b"another", DAY)
    assert all(value in disk.bytes_of_it() for value in kept.values())
    assert file.delete("deleted")
    file.empty_log()
    assert kept["deleted"] not in disk.bytes_of_it()
    disk.wait(61)
    assert not file.forget()
    file.tidy()
    assert {name for name, value in kept.items() if value in disk.bytes_of_it()} == {"stays"}
    file.close()
    assert kept["stays"] in disk.bytes_of_it()


def test_the_file_never_grows_beyond_its_bound_and_the_last_ones_are_there(disk: Disk) -> None:
    file = disk.file()
    largest = 0
    for number in range(300):
        file.put(f"{number}", os.urandom(1 + 997 * number % 60_000), DAY)
        disk.wait(1)
        if file.is_untidy:
            file.tidy()
            largest = max(largest, disk.path.stat().st_size)
    assert MEGABYTE * 0.8 < largest <= MEGABYTE
    assert all(file.get(f"{number}", DAY) for number in range(285, 300))
    assert file.get("0", DAY) is None


def test_pages_that_nobody_needs_any_more_are_given_back(disk: Disk) -> None:
    file = disk.file(max_bytes=16 * MEGABYTE)
    for number in range(2 * FORGOTTEN_AT_ONCE):
        file.put(f"{number}", bytes(50_000), 60)
    disk.wait(61)
    assert [file.forget() for _ in range(3)] == [True, True, False]
    sizes = list[int]()
    for _ in range(3):
        file.tidy()
        sizes.append(disk.path.stat().st_size)
    assert sizes[0] > sizes[1], "a few megabytes at a time"
    assert sizes[-1] < 100_000


def test_a_smaller_bound_holds_from_the_next_start_on(disk: Disk) -> None:
    file = disk.file(max_bytes=8 * MEGABYTE)
    for number in range(70):
        file.put(f"{number}", os.urandom(100_000), DAY)
        disk.wait(1)
    file.close()
    file = disk.file()
    file.open()
    assert disk.path.stat().st_size <= MEGABYTE
    assert file.get("69", DAY) is not None
    assert file.get("0", DAY) is None


def test_no_time_is_longer_than_what_is_given_now(disk: Disk) -> None:
    """With a shorter time in the configuration, and after a clock that was years ahead when it was stored."""
    file = disk.file()
    disk.now.now += 1e8
    ahead = disk.file()
    ahead.put("a", b"turn", DAY)
    ahead.close()
    disk.now.now -= 1e8
    file.put("b", b"turn", 60)
    file.close()
    disk.file(longest_seconds=3600).open()
    assert disk.ends() == {"a": pytest.approx(3600, abs=1), "b": pytest.approx(60, abs=1)}


def test_a_clock_that_is_set_while_it_runs_forgets_nothing(disk: Disk) -> None:
    file = disk.file()
    file.put("a", b"turn", 60)
    disk.now.now += 1e6
    assert file.get("a", 60) == b"turn"
    assert not file.forget()
    assert file.get("a", 60) == b"turn"


def test_time_is_given_anew_once_some_of_it_is_gone(disk: Disk) -> None:
    file = disk.file()
    file.put("a", b"turn", DAY)
    disk.wait(80)
    file.get("a", DAY)
    assert disk.ends()["a"] == pytest.approx(DAY - 80, abs=1), "a write for each reader would be for nothing"
    disk.wait(80)
    file.get("a", DAY)
    assert disk.ends()["a"] == pytest.approx(DAY, abs=1)


def test_whoever_cannot_be_given_more_time_reads_all_the_same(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    file = disk.file()
    file.put("a", b"turn", 60)
    disk.wait(30)
    with closing(sqlite3.connect(disk.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert file.get("a", 60) == b"turn"
    assert "its time could not be extended: database is locked" in caplog.text
    assert disk.ends()["a"] == pytest.approx(30, abs=1)


def test_the_last_room_of_a_disk_is_left_to_the_journal(disk: Disk) -> None:
    """Turns that need no additional disk space are still stored."""
    file = disk.file(max_bytes=8 * MEGABYTE)
    file.put("a", bytes(500_000), DAY)
    disk.free_bytes = LEAST_FREE_BYTES - 1
    with pytest.raises(StoreDown, match=r"less than 256 MB are free at .*: make room, or keep responses in memory"):
        file.put("b", bytes(500_000), DAY)
    assert file.get("a", DAY) == bytes(500_000)
    file.delete("a")
    file.put("c", bytes(400_000), DAY)
    assert file.get("c", DAY) == bytes(400_000)
    disk.free_bytes = LEAST_FREE_BYTES
    file.put("d", bytes(500_000), DAY)


def test_it_says_when_its_log_has_become_long(disk: Disk) -> None:
    file = disk.file(max_bytes=64 * MEGABYTE)
    assert not file.is_untidy
    file.put("a", bytes(4096 * UNTIDY_PAGES // 2), DAY)
    assert file.is_untidy
    file.tidy()
    assert not file.is_untidy
    assert disk.path.with_name("turns.db-wal").stat().st_size == 0


def test_of_what_belongs_together_nothing_makes_room_for_the_rest(disk: Disk) -> None:
    """Others are dropped, as long as there are any; otherwise nothing changes."""
    file = disk.file()
    file.put("other", bytes(400_000), DAY)
    disk.wait(1)
    pieces = {f"{one}": os.urandom(200_000) for one in range(4)}
    assert file.swap(Change("head", None, b"1", beside={"0": pieces["0"]}), DAY)
    assert file.get("other", None) is not None
    held = ["0"]
    for name in ("1", "2", "3"):
        disk.wait(1)
        head = b"%d" % len(held)
        assert file.swap(Change("head", head, b"%d" % (len(held) + 1), beside={name: pieces[name]}, renewed=held), DAY)
        held.append(name)
    assert file.get("other", None) is None
    disk.wait(1)
    with pytest.raises(StoreDown, match="no room for all parts"):
        file.swap(Change("head", b"4", b"5", beside={"4": bytes(500_000)}, gone=["0"], renewed=held[1:]), DAY)
    assert file.get("head", None) == b"4"
    assert {name: file.get(name, None) for name in held} == pieces


def told(file: TurnFile, name: str, owner: str, size: int) -> None:
    assert file.swap(Change(name, None, os.urandom(size), owner=owner), DAY)


@pytest.mark.parametrize("size", [100, 3000, 60_000])
def test_an_owner_who_has_much_makes_room_with_its_own(disk: Disk, size: int) -> None:
    file = disk.file()
    told(file, "small", "b", size)
    disk.wait(1)
    count = 3 * MEGABYTE // (size + 300)
    for number in range(count):
        told(file, f"{number}", "a", size)
        disk.wait(0.01)
    assert (file.get("small", None) is None, file.get("0", None)) == (False, None)
    assert file.get(f"{count - 1}", None) is not None


def test_what_owners_have_is_known_whatever_comes_and_goes(disk: Disk) -> None:
    file = disk.file()
    for number in range(60):
        told(file, f"{number}", "ab"[number % 2], 997 * number)
        disk.wait(1)
    file.put("nobodys", b"x", 10)
    assert file.swap(Change("59", file.get("59", None), b"y", gone=["57"], owner="b"), DAY)
    file.delete("58")
    disk.wait(DAY - 10)
    while file.forget():
        pass
    with closing(sqlite3.connect(disk.path)) as other:
        kept = other.execute("SELECT owner, sum(size) FROM turns WHERE owner <> '' GROUP BY owner").fetchall()
        assert other.execute("SELECT owner, bytes FROM owners").fetchall() == kept
        assert len(kept) == 2
        plan = "".join(map(str, other.execute(f"EXPLAIN QUERY PLAN {FIRST_OF_OWNER}", ("a",)).fetchall()))
    assert "turns_by_owner" in plan
    disk.wait(DAY)
    while file.forget():
        pass
    with closing(sqlite3.connect(disk.path)) as other:
        assert other.execute("SELECT * FROM owners").fetchall() == []


def test_an_owner_who_has_little_gets_its_room_from_who_was_not_there_longest(disk: Disk) -> None:
    file = disk.file()
    for number in range(40):
        told(file, f"{number}", "a", 30_000)
        disk.wait(1)
    told(file, "new", "b", 60_000)
    there = [number for number in range(40) if file.get(f"{number}", None) is not None]
    assert there == list(range(there[0], 40))
    assert file.get("new", None) is not None


def test_who_has_nothing_old_of_its_own_gets_the_room_of_others(disk: Disk) -> None:
    file = disk.file()
    told(file, "other", "b", 500_000)
    disk.wait(1)
    pieces = {f"{one}": os.urandom(100_000) for one in range(7)}
    assert file.swap(Change("head", None, b"1", beside=pieces, owner="a"), DAY)
    assert file.get("other", None) is None
    assert {name: file.get(name, None) for name in pieces} == pieces


def test_what_a_change_erased_is_in_no_file_any_more(disk: Disk) -> None:
    file, secret = disk.file(), os.urandom(16)
    assert file.swap(Change("head", None, secret, beside={"a": 500 * secret}), DAY)
    file.empty_log()
    assert secret in disk.bytes_of_it()
    assert file.swap(Change("head", secret, b"2", gone=["a"], erases=True), DAY)
    file.empty_log()
    assert secret not in disk.bytes_of_it()


def test_whoever_only_looks_gives_no_time(disk: Disk) -> None:
    file = disk.file()
    file.put("a", b"turn", 60)
    disk.wait(50)
    assert file.get("a", None) == b"turn"
    assert disk.ends()["a"] < 11
    disk.wait(11)
    assert file.get("a", None) is None
