"""Journals of dead workers are shipped with their orphans and removed; those of living workers are left alone."""

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.ledger.adoption import adopt_abandoned
from gateway.ledger.directories import claim_abandoned, claim_directory
from gateway.ledger.disk import LocalFile
from gateway.ledger.entry import Status
from gateway.ledger.journal import Journal
from tests.faults.ledger.power_loss import Database
from tests.unit.gateway.ledger.builders import make_entry, make_intent, request_id


def no_failure(error: OSError) -> None:
    raise AssertionError(error)


async def adopt(root: Path, database: Database) -> int:
    return await adopt_abandoned(root, database, on_failure=no_failure, seconds_each=60)


def descriptors_and_threads() -> tuple[int, int]:
    return len(os.listdir("/dev/fd")), sum(thread.name.startswith("journal") for thread in threading.enumerate())


def directories(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("worker-*"))


async def leave_behind(root: Path) -> None:
    """Runs a worker that settles one request, leaves another open, and dies."""
    with claim_directory(root) as claim:
        journal = Journal.open(claim.path, on_failure=no_failure, segment_bytes=1 << 17)
        journal.intend(make_intent(1))
        journal.intend(make_intent(2))
        await journal.settle(make_entry(1))
        await journal.aclose()


async def test_a_dead_workers_entries_are_shipped_and_its_directory_goes(tmp_path: Path) -> None:
    database = Database()
    await leave_behind(tmp_path)
    assert await adopt(tmp_path, database) == 1
    assert {number: entry.status for number, entry in database.rows.items()} == {
        request_id(1): Status.completed,
        request_id(2): Status.orphaned,
    }
    assert directories(tmp_path) == []


async def test_a_directory_stays_until_everything_in_it_is_shipped(tmp_path: Path) -> None:
    class Down(Database):
        async def insert(self, batch: object) -> int:
            raise ConnectionError("down")

    await leave_behind(tmp_path)
    assert await adopt_abandoned(tmp_path, Down(), on_failure=no_failure, seconds_each=0.01) == 0
    database = Database()
    assert await adopt(tmp_path, database) == 1
    assert len(database.rows) == 2


async def test_a_living_workers_directory_is_left_alone(tmp_path: Path) -> None:
    with claim_directory(tmp_path) as claim:
        assert await adopt(tmp_path, Database()) == 0
        assert claim.path.exists()


async def test_what_cannot_be_read_stays_and_the_rest_is_taken(tmp_path: Path) -> None:
    await leave_behind(tmp_path)
    broken = tmp_path / "worker-0000"
    broken.rename(tmp_path / "worker-0009")
    await leave_behind(tmp_path)
    (tmp_path / "worker-0000" / "0000000000000099.seg").mkdir()
    database = Database()
    assert await adopt(tmp_path, database) == 1
    assert directories(tmp_path) == ["worker-0000"]
    before = descriptors_and_threads()
    assert await adopt(tmp_path, database) == 0
    assert descriptors_and_threads() == before  # it is tried again every half minute, for as long as nobody repairs it


async def test_who_is_stopped_while_a_journal_is_read_keeps_its_directory_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leave_behind(tmp_path)
    is_reading, may_go_on = threading.Event(), threading.Event()
    read = LocalFile.read

    def read_slowly(file: LocalFile, offset: int, length: int) -> bytes:
        is_reading.set()
        may_go_on.wait()
        return read(file, offset, length)

    monkeypatch.setattr(LocalFile, "read", read_slowly)
    adopting = asyncio.create_task(adopt(tmp_path, Database()))
    await asyncio.to_thread(is_reading.wait)
    adopting.cancel()
    await asyncio.wait([adopting], timeout=0.01)
    taken = list(claim_abandoned(tmp_path))
    may_go_on.set()
    assert not taken
    with pytest.raises(asyncio.CancelledError):
        await adopting
    [claim] = claim_abandoned(tmp_path)
    claim.release()


async def test_a_directory_removed_by_halves_has_its_note_as_long_as_it_has_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leave_behind(tmp_path)
    gone: list[str] = []
    listed, unlink = Path.iterdir, Path.unlink

    def tell(path: Path, missing_ok: bool = False) -> None:
        gone.append(path.suffix or path.name)
        unlink(path, missing_ok)

    def worst(path: Path) -> Iterator[Path]:
        return iter(sorted(listed(path), reverse=True))

    monkeypatch.setattr(Path, "iterdir", worst)
    monkeypatch.setattr(Path, "unlink", tell)
    assert await adopt(tmp_path, Database()) == 1
    assert gone == sorted(gone, key=[".seg", "shipped", "lock"].index)
    assert {".seg", "shipped"} < set(gone)


def test_a_lock_on_a_removed_directory_counts_for_nothing(tmp_path: Path) -> None:
    first = claim_directory(tmp_path)
    late = os.open(first.path / "lock", os.O_RDWR)  # opened by another process just before it was removed
    first.remove()
    second = claim_directory(tmp_path)
    assert second.path == first.path
    assert not os.path.samestat(os.fstat(late), os.stat(second.path / "lock"))
    os.close(late)
    second.release()
