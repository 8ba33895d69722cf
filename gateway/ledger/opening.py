"""A worker's journal: a directory claimed for it alone, and in it a journal that accepts. Knows no wiring."""

from collections.abc import Callable
from pathlib import Path

from gateway.errors import StateError
from gateway.ledger.directories import Claim, claim_directory
from gateway.ledger.journal import Journal


def open_journal(root: Path, *, on_failure: Callable[[OSError], None]) -> tuple[Claim, Journal]:
    """Its first segment is as long on disk as it will become. Raises StateError when there is no room for it."""
    claim = claim_directory(root)
    try:
        return claim, Journal.open(claim.path, on_failure=on_failure)
    except OSError as error:
        claim.release()
        raise StateError(
            f"cannot keep the journal in {root}: {error.strerror}; make room there, or set BREAKEVEN_HOME "
            "to a disk that has it"
        ) from error
