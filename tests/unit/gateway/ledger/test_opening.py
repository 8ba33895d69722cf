"""A journal is opened in a directory of its own; where the disk has no room, a sentence says what to do."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.errors import StateError
from gateway.ledger.opening import open_journal


@pytest.fixture
def no_room() -> Iterator[None]:
    """No file may become longer than a page, which is an OSError as a full disk is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def never(error: OSError) -> None:
    raise AssertionError(error)


@pytest.mark.usefixtures("no_room")
def test_a_disk_without_room_is_one_sentence_and_the_directory_is_free_again(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(StateError, match="make room there, or set BREAKEVEN_HOME"):
            open_journal(tmp_path, on_failure=never)
    assert len(list(tmp_path.iterdir())) == 1


async def test_with_room_it_accepts(tmp_path: Path) -> None:
    claim, journal = open_journal(tmp_path, on_failure=never)
    assert journal.unshipped_entries == 0
    await journal.aclose()
    claim.release()
