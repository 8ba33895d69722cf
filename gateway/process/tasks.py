"""Ends background tasks for certain. Knows nothing of what they do."""

import asyncio
from collections.abc import Collection
from typing import Any

AGAIN_SECONDS = 10.0
"""Longer than a database takes to close a connection that was cancelled in the middle of a statement: a second
cancellation there would leave it open."""


async def end_tasks(tasks: Collection["asyncio.Task[Any]"]) -> None:
    """Cancel them until they have ended; what they raise is theirs alone.

    Once is not enough: code that awaits through `asyncio.wait_for` (Redis' client does) loses a cancellation that comes
    in the moment its wait is over, in Python before 3.12.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)
