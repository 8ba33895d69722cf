"""Checks whether a file of kept responses or conversations can be used, possibly while a gateway uses it. Changes and
creates nothing."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from gateway.errors import StateError
from gateway.storage.turns.disposable_file import BESIDE, MODE
from gateway.storage.turns.turn_file import LEAST_FREE_BYTES, free_bytes_at

OTHERS: Final = 0o077
BUSY_SECONDS: Final = 5.0
NEXT: Final = "SELECT id, value FROM sealed WHERE id > ? ORDER BY id LIMIT 1"


def inspect_turn_file(
    path: Path, *, max_bytes: int, free_bytes: Callable[[Path], int] = free_bytes_at, what: str = "responses"
) -> str:
    """A description of the content. Raises StateError with the problem and the remedy."""
    files = [one for one in (path.with_name(path.name + suffix) for suffix in BESIDE) if one.exists()]
    _require_ours(path, files)
    if free_bytes(path.parent) < LEAST_FREE_BYTES:
        raise StateError(
            f"less than {LEAST_FREE_BYTES >> 20} MB are free at {path.parent}: no more {what} are kept until there "
            "is room, because the journal may need it"
        )
    if path not in files:
        return "none kept yet"
    count, size = _read_through(path), path.stat().st_size
    if size > max_bytes:
        raise StateError(
            f"{path} has {size / 1e6:.0f} MB, more than `kept_answers.disk_megabytes` allows; the next start of "
            "`breakeven serve` makes it smaller"
        )
    # Several of each conversation, and of each response in the background.
    return f"{count:,} records in {path}, {size / 1e6:.0f} of {max_bytes / 1e6:.0f} MB"


def _require_ours(path: Path, files: list[Path]) -> None:
    needed = [(path.parent, os.R_OK | os.W_OK | os.X_OK), *((one, os.R_OK | os.W_OK) for one in files)]
    for one, mode in needed:
        if not os.access(one, mode):
            raise StateError(f"{one} is not writable: give it to the user that runs `breakeven serve`")
    for one in files:
        if one.stat().st_mode & OTHERS:
            raise StateError(f"{one} can be read by others than its owner: chmod {MODE:o} {one}")


def _read_through(path: Path) -> int:
    """Reads each row in a transaction of its own, since a long-running reader would keep the write-ahead log, with
    deleted data in it, from being emptied. Returns the number of rows."""
    try:
        with closing(sqlite3.connect(_address(path), uri=True, isolation_level=None, timeout=BUSY_SECONDS)) as looking:
            looking.execute("SELECT max(until_ms), max(name), count(*) FROM turns").fetchall()
            count, last = 0, -1
            while (row := looking.execute(NEXT, (last,)).fetchone()) is not None:
                last, count = row[0], count + 1
            return count
    except sqlite3.Error as error:
        raise StateError(
            f"{path} is damaged or of another version ({error}): `breakeven serve` begins it anew, and what was kept "
            "there is lost; see that its disk is sound"
        ) from error


def _address(path: Path) -> str:
    """If a log and its index exist, a process uses the file or was killed. Without them SQLite would create them even
    to read, with the wrong owner; `immutable` prevents that."""
    is_used = all(path.with_name(path.name + suffix).exists() for suffix in BESIDE)
    return f"{path.absolute().as_uri()}?{'mode=ro' if is_used else 'immutable=1'}"
