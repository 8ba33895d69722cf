"""Opens a worker's journal: claims a directory for it alone and opens a journal there. Knows no wiring."""

from collections.abc import Callable
from pathlib import Path

from gateway.errors import StateError
from gateway.ledger.directories import Claim, claim_directory
from gateway.ledger.journal import Journal


def open_journal(root: Path, *, on_failure: Callable[[OSError], None]) -> tuple[Claim, Journal]:
    """The first segment is allocated in full. Raises StateError when the disk has no room for it, or fails."""
    claim = claim_directory(root)
    try:
        return claim, Journal.open(claim.path, on_failure=on_failure)
    except OSError as error:
        claim.release()
        raise StateError(
            f"cannot keep the journal in {root}: {error.strerror}; see that its disk has room and works, or set "
            "BREAKEVEN_HOME to one that does"
        ) from error
