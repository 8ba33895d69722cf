import asyncio

import pytest

from gateway.process import tasks as module
from gateway.process.tasks import end_tasks


async def test_a_task_that_swallows_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.05)
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 2:
                    raise

    async def fails() -> None:
        raise ValueError

    tasks = [asyncio.create_task(stubborn()), asyncio.create_task(fails())]
    await asyncio.sleep(0)
    async with asyncio.timeout(300):
        await end_tasks(tasks)
    assert swallowed == 2
    assert all(task.done() for task in tasks)


async def test_nothing_to_end() -> None:
    await end_tasks([])
