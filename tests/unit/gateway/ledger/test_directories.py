"""Claims: one holder each, lowest first, abandoned ones found."""

from pathlib import Path

import pytest

from gateway.errors import StateError
from gateway.ledger.directories import claim_abandoned, claim_directory


def test_two_workers_never_share_a_directory_and_a_free_one_is_reused(tmp_path: Path) -> None:
    first, second = claim_directory(tmp_path), claim_directory(tmp_path)
    assert first.path != second.path
    first.release()
    with claim_directory(tmp_path) as third:
        assert third.path == first.path
    second.release()


def test_only_directories_that_nobody_holds_are_abandoned(tmp_path: Path) -> None:
    first, second = claim_directory(tmp_path), claim_directory(tmp_path)
    second.release()
    found = list(claim_abandoned(tmp_path))
    assert [claim.path for claim in found] == [second.path]
    assert not list(claim_abandoned(tmp_path))
    for claim in (first, *found):
        claim.release()


def test_an_unusable_root_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot use"):
        claim_directory(tmp_path / "file")
