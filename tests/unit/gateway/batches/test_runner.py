"""Which process works on which batch, with a scripted store."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

import pytest

from gateway.batches.run import BatchRun
from gateway.batches.runner import AWAY_SECONDS, BatchRunner
from gateway.batches.values import Batch
from gateway.errors import DatabaseDown
from tests.unit.gateway.batches.builders import MemoryBatches, make_batch


class Offering(MemoryBatches):
    """Offers a batch at every call, and fails at the first ones."""

    def __init__(self, *, failures: int = 0) -> None:
        super().__init__()
        self.looks = 0
        self.asked: list[int] = []
        self._failures = failures

    async def claim(self, runner: str, *, seconds: float, most: int, besides: Collection[str] = ()) -> Sequence[Batch]:
        self.looks += 1
        if self.looks <= self._failures:
            raise DatabaseDown("it is away")
        self.asked.append(most)
        return [make_batch()][:most]


class Endless(BatchRun):
    """Works for ever."""

    began = 0

    def __init__(self) -> None:  # nothing of it is used
        self.is_wound_down = asyncio.Event()

    async def run(self) -> None:
        Endless.began += 1
        await self.is_wound_down.wait()

    def wind_down(self) -> None:
        self.is_wound_down.set()


async def at_once(seconds: float) -> None:
    await asyncio.sleep(0)


async def nothing_new() -> bool:
    return True


async def looked(store: Offering, times: int, sleep: Callable[[float], Awaitable[None]] = at_once) -> BatchRunner:
    runner = BatchRunner(store, lambda batch: Endless(), nothing_new, name="me", sleep=sleep)
    task = asyncio.create_task(runner.run())
    async with asyncio.timeout(300):
        while store.looks < times:
            runner.wake()
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return runner


async def test_a_batch_that_is_offered_again_is_worked_on_once() -> None:
    """Its lease expired while this process was stalled."""
    Endless.began = 0
    store = Offering()
    runner = await looked(store, 5)
    assert Endless.began == 1
    await runner.stop(1.0)
    assert store.released == 2, "before the first look, and at the end"


async def test_while_the_database_is_away_it_is_looked_again_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    Endless.began = 0
    runner = await looked(Offering(failures=3), 5)
    assert Endless.began == 1
    await runner.stop(1.0)
    assert len(caplog.messages) == 1


async def test_once_the_database_is_back_whoever_had_a_batch_may_come_first() -> None:
    """The lease expired because nothing could be stored, not because the worker died."""
    slept: list[tuple[float, list[int]]] = []

    async def sleep(seconds: float) -> None:
        slept.append((seconds, list(store.asked)))
        await asyncio.sleep(0)

    store = Offering(failures=2)
    runner = await looked(store, 5, sleep)
    await runner.stop(1.0)
    assert slept == [(AWAY_SECONDS, [0])], "it was back, and none was taken yet"
    assert set(store.asked[1:]) == {1}


class Waiting(MemoryBatches):
    """Has ten batches of one team, then one of another."""

    def __init__(self) -> None:
        super().__init__()
        self.left = [make_batch(id=f"batch_{number:02d}") for number in range(10)]
        self.left.append(make_batch(id="batch_blue", tenant="team blue"))

    async def claim(self, runner: str, *, seconds: float, most: int, besides: Collection[str] = ()) -> Sequence[Batch]:
        found = [batch for batch in self.left if batch.tenant not in besides][:most]
        self.left = [batch for batch in self.left if batch not in found]
        return found


async def test_no_team_keeps_all_others_waiting() -> None:
    begun: list[str] = []

    def open_run(batch: Batch) -> BatchRun:
        begun.append(batch.id)
        return Endless()

    runner = BatchRunner(Waiting(), open_run, nothing_new, name="me")
    task = asyncio.create_task(runner.run())
    async with asyncio.timeout(300):
        while "batch_blue" not in begun:
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await runner.stop(1.0)
    assert begun == ["batch_00", "batch_01", "batch_02", "batch_03", "batch_blue"]


async def test_once_it_stops_it_takes_none_that_nobody_would_end() -> None:
    """It is stopped while claiming; otherwise others would have to wait for the claimed batch."""
    Endless.began = 0
    store = Offering()
    runner = BatchRunner(store, lambda batch: Endless(), nothing_new, name="me")
    task = asyncio.create_task(runner.run())
    async with asyncio.timeout(300):
        while not Endless.began:
            await asyncio.sleep(0)
    await runner.stop(1.0)
    for _ in range(10):
        runner.wake()
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (Endless.began, runner.batches_under_way) == (1, 0)


async def test_keys_made_before_a_batch_are_known_before_its_first_line() -> None:
    """The worker that created the batch knows the key; another may see the batch before the key, and asks a slow
    database until it answers."""
    order: list[str] = []

    async def catch_up() -> bool:
        order.append("keys")
        return len(order) == 3

    class Noted(Endless):
        async def run(self) -> None:
            order.append("lines")
            await super().run()

    runner = BatchRunner(Offering(), lambda batch: Noted(), catch_up, name="me", sleep=at_once)
    task = asyncio.create_task(runner.run())
    async with asyncio.timeout(300):
        while "lines" not in order:
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await runner.stop(1.0)
    assert order == ["keys", "keys", "keys", "lines"]
