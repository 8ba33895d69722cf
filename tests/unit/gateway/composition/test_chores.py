"""A chore that fails is done again."""

import asyncio

import pytest

from gateway.composition.chores import Chore


async def test_a_chore_is_done_again_and_again_also_after_it_failed(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []
    enough = asyncio.Event()

    async def sweep() -> None:
        done.append(len(done))
        if len(done) == 1:
            raise ConnectionError("down")
        if len(done) == 3:
            enough.set()

    running = asyncio.create_task(Chore("sweeping", 0.0, sweep).run())
    await asyncio.wait_for(enough.wait(), 300)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "sweeping failed" in caplog.text
