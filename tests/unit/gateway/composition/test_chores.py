"""A chore that fails is repeated, and background work that ends unexpectedly is restarted."""

import asyncio

import pytest

from gateway.composition.chores import Chore, lasting
from tests.virtual_time import run


async def test_work_for_ever_ends_when_it_is_cancelled() -> None:
    running = asyncio.create_task(lasting("watching", asyncio.Event().wait))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


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


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), asyncio.CancelledError(), None])
def test_work_for_ever_that_breaks_off_or_ends_is_begun_anew_and_told(
    error: BaseException | None, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[float] = []

    async def work() -> None:
        begun.append(asyncio.get_running_loop().time())
        if error is not None:
            raise error

    async def watched() -> None:
        running = asyncio.create_task(lasting("watching", work))
        await asyncio.sleep(60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(watched)
    assert 10 <= len(begun) <= 13
    assert caplog.text.count("watching broke off" if error else "watching ended") == len(begun)
