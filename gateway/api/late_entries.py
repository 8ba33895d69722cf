"""Entries of requests that have just ended: a caller may ask for one before it has reached the database."""

import asyncio
import re
from collections.abc import Callable
from typing import Final

from gateway.clock import now_us
from gateway.errors import NotFound
from gateway.ledger.entry import Entry
from gateway.stores import EntryStore

WAITS: Final = (0.1, 0.2, 0.3, 0.5, 0.9, 1.5, 2.5)
"""Seconds between looks. An entry is there after about half a second; the first of a process takes longer."""
YOUNG_US: Final = 3_600_000_000
"""A stream may have run for as long. Clocks of replicas may differ by less."""
_NAME: Final = re.compile(r"[0-9a-f]{12}7[0-9a-f]{19}")
"""See gateway.ids: it begins with the milliseconds since the epoch."""


async def get_soon(
    entries: EntryStore, request_id: str, is_open: Callable[[Entry], bool], *, now: Callable[[], int] = now_us
) -> Entry:
    """The entry, waited for where it may be on its way. Raises NotFound; one that is not open to whoever asks looks and
    takes exactly as one that never was."""
    waits = iter(WAITS if _is_young(request_id, now()) else ())
    while True:
        entry = await entries.get(request_id)
        if entry is not None and is_open(entry):
            return entry
        seconds = next(waits, None)
        if seconds is None:
            raise NotFound(
                f"There is no request {request_id[:64]!r}; it appears here about two seconds after its last byte.",
                code="request_not_found",
            )
        await asyncio.sleep(seconds)


def _is_young(request_id: str, now: int) -> bool:
    return _NAME.fullmatch(request_id) is not None and abs(now - int(request_id[:12], 16) * 1000) < YOUNG_US
