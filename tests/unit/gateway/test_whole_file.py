"""Whole or not at all."""

from pathlib import Path

import pytest

from gateway.whole_file import write_whole


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
