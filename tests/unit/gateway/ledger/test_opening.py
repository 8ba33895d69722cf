"""A journal is opened in a directory of its own; if the disk is full, the error says what to do."""

import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.errors import StateError
from gateway.ledger.opening import open_journal


@contextmanager
def no_room() -> Generator[None]:
    """Limits the length of files to a page; beyond it writing raises OSError, as on a full disk. Not a fixture, since
    pytest itself writes before a fixture ends, and its log may be longer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def never(error: OSError) -> None:
    raise AssertionError(error)


def test_a_disk_without_room_is_one_sentence_and_the_directory_is_free_again(tmp_path: Path) -> None:
    for _ in range(2):
        with no_room(), pytest.raises(StateError, match="see that its disk has room and works, or set BREAKEVEN_HOME"):
            open_journal(tmp_path, on_failure=never)
    assert len(list(tmp_path.iterdir())) == 1


async def test_with_room_it_accepts(tmp_path: Path) -> None:
    claim, journal = open_journal(tmp_path, on_failure=never)
    assert journal.unshipped_entries == 0
    await journal.aclose()
    claim.release()
