"""Reliably ends background tasks, and completes what must not be broken off. Knows nothing of what they do."""

import asyncio
from collections.abc import Awaitable, Collection
from typing import Any, TypeVar

T = TypeVar("T")

AGAIN_SECONDS = 10.0
"""Longer than a database takes to close a connection whose statement was cancelled: a second cancellation there would
leave it open."""


async def end_tasks(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks until they have ended; their exceptions are ignored.

    Once is not enough: before Python 3.12, code that awaits through `asyncio.wait_for` (as Redis' client does) loses a
    cancellation that arrives just as its wait ends.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)


async def to_its_end(work: Awaitable[T]) -> T:
    """Completes despite one cancellation, which is then raised; a second one interrupts it.

    For what a store may do even if nobody awaits it any more: whatever is told to the store next comes after it.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise
