"""Adopts the journals of dead workers: ships what they hold, orphaned requests included, then removes them."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from gateway.ledger.directories import Claim, claim_abandoned
from gateway.ledger.journal import Journal
from gateway.ledger.shipper import EntrySink, Shipper
from gateway.process.tasks import to_its_end

log = logging.getLogger(__name__)


async def adopt_abandoned(
    root: Path, sink: EntrySink, *, on_failure: Callable[[OSError], None], seconds_each: float
) -> int:
    """Take over every directory below `root` that nobody holds; returns how many were removed.

    A journal that cannot be read is logged and left; one not fully shipped within `seconds_each` is left for next time.
    """
    removed = 0
    for claim in claim_abandoned(root):
        with claim:
            try:
                if await _ship(claim, sink, on_failure, seconds_each):
                    claim.remove()
                    removed += 1
            except OSError as error:
                log.error("cannot take over the journal in %s (%s); repair it, it is tried again", claim.path, error)
    return removed


async def _ship(claim: Claim, sink: EntrySink, on_failure: Callable[[OSError], None], seconds: float) -> bool:
    """True when nothing is left to ship."""
    if not any(claim.path.glob("*.seg")):
        return True
    # To its end: the thread goes on when this is cancelled, and nobody else may have the directory until it has ended.
    journal = await to_its_end(asyncio.to_thread(Journal.open, claim.path, on_failure=on_failure))
    try:
        return await Shipper(journal, sink).drain(seconds)
    finally:
        await journal.aclose()
