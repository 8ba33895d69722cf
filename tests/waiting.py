"""Waits for what another task, thread or process does."""

import asyncio
import inspect
import time
from collections.abc import Callable

PATIENCE_SECONDS = 300.0
"""Longer than anything takes on a slow and busy machine."""


async def until(holds: Callable[[], object]) -> None:
    """What `holds` returns may be awaitable."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await found if inspect.isawaitable(found := holds()) else found):
            await asyncio.sleep(0.005)


def wait_until(holds: Callable[[], object], what: str = "") -> None:
    """Without an event loop."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited too long: {what}"
        time.sleep(0.05)
