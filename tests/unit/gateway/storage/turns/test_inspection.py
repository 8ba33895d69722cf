"""A file of kept responses is inspected while in use, and left unchanged."""

import hashlib
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gateway.errors import StateError
from gateway.storage.turns.disposable_file import BESIDE
from gateway.storage.turns.inspection import inspect_turn_file
from gateway.storage.turns.turn_file import TurnFile

MOST = 8 << 20


def open_file(path: Path) -> TurnFile:
    return TurnFile(path, max_bytes=MOST, longest_seconds=60)


def kept(path: Path, count: int = 3, size: int = 20_000) -> TurnFile:
    """A file that is still open, as by a serving gateway."""
    file = open_file(path)
    for number in range(count):
        file.put(f"turn-{number}", os.urandom(size), 60)
    return file


def contents(folder: Path) -> dict[str, str]:
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in folder.iterdir()}


def test_none_is_made(tmp_path: Path) -> None:
    assert inspect_turn_file(tmp_path / "kept.db", max_bytes=MOST) == "none kept yet"
    assert list(tmp_path.iterdir()) == []


def test_one_that_nobody_uses_is_left_as_it_is(tmp_path: Path) -> None:
    kept(tmp_path / "kept.db").close()
    before = contents(tmp_path)
    assert inspect_turn_file(tmp_path / "kept.db", max_bytes=MOST).startswith("3 records in ")
    assert contents(tmp_path) == before
    assert len(before) == 1


def test_one_that_a_process_uses_goes_on_as_if_nobody_had_looked(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    file = kept(path)
    assert inspect_turn_file(path, max_bytes=MOST).startswith("3 records in ")
    file.tidy()
    assert path.with_name("kept.db-wal").stat().st_size == 0
    file.put("turn-9", b"after", 60)
    assert inspect_turn_file(path, max_bytes=MOST).startswith("4 records in ")
    assert file.get("turn-9", 60) == b"after"
    file.close()


def test_what_a_killed_process_left_in_the_log_is_there_and_stays(tmp_path: Path) -> None:
    gateway = kept(tmp_path / "kept.db")
    killed = tmp_path / "killed"
    killed.mkdir()
    for suffix in BESIDE:
        copy = killed / f"kept.db{suffix}"
        copy.write_bytes((tmp_path / f"kept.db{suffix}").read_bytes())
        copy.chmod(0o600)
    gateway.close()
    log = (killed / "kept.db-wal").read_bytes()
    assert inspect_turn_file(killed / "kept.db", max_bytes=MOST).startswith("3 records in ")
    assert (killed / "kept.db-wal").read_bytes() == log
    again = open_file(killed / "kept.db")
    assert again.get("turn-2", 60) is not None
    again.close()


def torn(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 : len(content)] = os.urandom(len(content) - 4096)
    path.write_bytes(content)


def no_database(path: Path) -> None:
    path.write_bytes(b"not a database" * 500)


def readable_by_the_group(path: Path) -> None:
    path.chmod(0o640)


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE turns")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (torn, "is damaged or of another version"),
        (no_database, "is damaged or of another version"),
        (foreign, "is damaged or of another version"),
        (readable_by_the_group, "can be read by others than its owner: chmod 600"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, harm: Callable[[Path], None], said: str) -> None:
    path = tmp_path / "kept.db"
    kept(path, 50).close()
    harm(path)
    with pytest.raises(StateError, match=said):
        inspect_turn_file(path, max_bytes=MOST)


def test_the_log_must_be_private_too(tmp_path: Path) -> None:
    file = kept(tmp_path / "kept.db")
    (tmp_path / "kept.db-wal").chmod(0o644)
    with pytest.raises(StateError, match=r"kept\.db-wal can be read by others"):
        inspect_turn_file(tmp_path / "kept.db", max_bytes=MOST)
    file.close()


@pytest.mark.parametrize("closed", ["kept.db", "."])
def test_one_of_somebody_else_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str) -> None:
    path = tmp_path / "kept.db"
    kept(path).close()
    real = os.access

    def access(one: Path, mode: int) -> bool:
        return one != tmp_path / closed and real(one, mode)  # root may access everything

    monkeypatch.setattr(os, "access", access)
    with pytest.raises(StateError, match="is not writable: give it to the user"):
        inspect_turn_file(path, max_bytes=MOST)


def test_one_above_its_bound_is_said(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    kept(path, 60).close()
    with pytest.raises(StateError, match=r"1 MB, more than `kept_answers\.disk_megabytes` allows"):
        inspect_turn_file(path, max_bytes=1 << 20)


def test_a_disk_that_is_nearly_full_is_said(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="less than 256 MB are free"):
        inspect_turn_file(tmp_path / "kept.db", max_bytes=MOST, free_bytes=lambda folder: 255 << 20)
