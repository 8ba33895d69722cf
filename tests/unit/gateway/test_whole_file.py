"""Files are replaced whole or not at all."""

import errno
import os
import resource
import threading
from pathlib import Path

import pytest

from gateway.whole_file import whole_file, write_whole


def test_what_was_there_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "rules.taken"
    write_whole(file, b"old")
    write_whole(file, b"new")
    assert file.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [file]


def test_where_it_cannot_be_replaced_no_part_is_left(tmp_path: Path) -> None:
    (tmp_path / "taken" / "by-a-folder").mkdir(parents=True)
    with pytest.raises(OSError, match="taken"):
        write_whole(tmp_path / "taken", b"new")
    assert [one.name for one in tmp_path.iterdir()] == ["taken"]


def test_a_link_stays_one_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=write_whole, args=(pipe, b"new"))
    writer.start()
    assert pipe.read_bytes() == b"new"
    writer.join()
    assert pipe.is_fifo()


def test_what_does_not_fit_leaves_the_old(tmp_path: Path) -> None:
    file = tmp_path / "rules.taken"
    write_whole(file, b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            write_whole(file, bytes(1 << 21))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_what_lasts_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks the order of system calls, as no disk can lose power here."""
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noting_sync(file: int) -> None:
        done.append("sync")
        fsync(file)

    def noting_name(old: Path, new: Path) -> None:
        done.append("name")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noting_sync)
    monkeypatch.setattr(os, "replace", noting_name)
    write_whole(tmp_path / "a", b"1")
    write_whole(tmp_path / "b", b"2", lasts=False)
    assert done == ["sync", "name", "name"]


def test_what_is_written_in_pieces_and_not_to_its_end_leaves_the_old(tmp_path: Path) -> None:
    file = tmp_path / "focus.csv"
    file.write_bytes(b"old")

    def break_off() -> None:
        with whole_file(file) as pieces:
            pieces.write(b"half")
            raise KeyError("the database has gone")

    with pytest.raises(KeyError):
        break_off()
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]
    with whole_file(file) as pieces:
        pieces.write(b"all ")
        pieces.write(b"of it")
    assert file.read_bytes() == b"all of it"
