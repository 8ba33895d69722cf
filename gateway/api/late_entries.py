"""Looks up entries of requests that have just ended, which may not have reached the database yet."""

import asyncio
import re
from collections.abc import Callable
from typing import Final

from gateway.clock import now_us
from gateway.errors import NotFound
from gateway.ledger.entry import Entry
from gateway.stores import EntryStore

WAITS: Final = (0.1, 0.2, 0.3, 0.5, 0.9, 1.5, 2.5)
"""Seconds between attempts. An entry usually arrives within half a second; a process's first takes longer."""
YOUNG_US: Final = 3_600_000_000
"""Ids are assigned when a request starts, and a stream may run this long. Also covers clock skew of replicas."""
_NAME: Final = re.compile(r"[0-9a-f]{12}7[0-9a-f]{19}")
"""See gateway.ids: an id begins with the milliseconds since the epoch."""


async def get_soon(
    entries: EntryStore, request_id: str, is_open: Callable[[Entry], bool], *, now: Callable[[], int] = now_us
) -> Entry:
    """The entry; waits if it may still be on its way. Raises NotFound. A forbidden entry is indistinguishable from a
    missing one, in timing too."""
    waits = iter(WAITS if _is_young(request_id, now()) else ())
    while True:
        entry = await entries.get(request_id)
        if entry is not None and is_open(entry):
            return entry
        seconds = next(waits, None)
        if seconds is None:
            raise NotFound(
                f"There is no request {request_id[:64]!r}. A new one appears here about two seconds after its last "
                "byte.",
                code="request_not_found",
            )
        await asyncio.sleep(seconds)


def _is_young(request_id: str, now: int) -> bool:
    return _NAME.fullmatch(request_id) is not None and abs(now - int(request_id[:12], 16) * 1000) < YOUNG_US
