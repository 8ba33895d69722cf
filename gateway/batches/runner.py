"""Finds batches that nobody works on, and works on them besides serving interactive requests."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.batches.run import LEASE_SECONDS, RETRY_SECONDS, BatchRun
from gateway.batches.values import Batch, Leases
from gateway.errors import StateError
from gateway.process.tasks import end_tasks

log = logging.getLogger(__name__)
LOOK_SECONDS: Final = 2.0
AWAY_SECONDS: Final = 2 * RETRY_SECONDS
"""No batch is claimed for this long after the database returns, so that workers can store what they hold: leases expire
while nothing can be stored, and their answers would be asked for, and paid, again."""
MOST_BATCHES, MOST_OF_ONE = 32, 4
"""At a time in one process, and per tenant; other batches are for other processes, or wait."""


class BatchRunner:
    """Start `run`, cancel it, and call `stop` before or after. `open_run` creates the worker of one batch. `catch_up`
    loads keys created before the call; False if it could not: a batch may be visible here before its new key is, and
    every line of an unknown key is refused for good. `name` is unique among living processes, and reused by the
    successor of a dead one, which then need not wait for the lease to expire."""

    def __init__(
        self,
        batches: Leases,
        open_run: Callable[[Batch], BatchRun],
        catch_up: Callable[[], Awaitable[bool]],
        *,
        name: str,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._batches = batches
        self._open_run = open_run
        self._catch_up = catch_up
        self._name = name
        self._news = asyncio.Event()
        self._sleep = sleep
        self._is_stopping = self._was_away = self._is_told = False
        self._runs: dict[asyncio.Task[None], tuple[Batch, BatchRun]] = {}

    @property
    def batches_under_way(self) -> int:
        return len(self._runs)

    @property
    def lines_under_way(self) -> int:
        return sum(run.lines_under_way for _, run in self._runs.values())

    def wake(self) -> None:
        """There is a new batch."""
        self._news.set()

    async def run(self) -> None:
        """Runs forever."""
        await self._release()
        while True:
            await self._look()
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()

    async def stop(self, seconds: float) -> None:
        """Lets lines in progress end, then releases the batches to others."""
        self._is_stopping = True
        for _, run in self._runs.values():
            run.wind_down()
        taken = dict(self._runs)
        if taken:
            await asyncio.wait(taken, timeout=seconds)
        await end_tasks(taken)
        await self._release()

    async def _release(self) -> None:
        try:
            await self._batches.release(self._name)
        except StateError as error:
            log.warning("the batches of this process stay reserved for up to %.0f s (%s)", LEASE_SECONDS, error)

    async def _look(self) -> None:
        """Claims one batch at a time, so that no tenant exceeds its share."""
        while len(self._runs) < MOST_BATCHES and not self._is_stopping:
            mine = {batch.id for batch, _ in self._runs.values()}
            counted = Counter(batch.tenant for batch, _ in self._runs.values())
            full = [tenant for tenant, count in counted.items() if count >= MOST_OF_ONE]
            try:
                if self._was_away:
                    await self._batches.claim(self._name, seconds=LEASE_SECONDS, most=0)
                    self._was_away = False
                    await self._sleep(AWAY_SECONDS)
                found = await self._batches.claim(self._name, seconds=LEASE_SECONDS, most=1, besides=full)
            except StateError as error:
                if not self._is_told:
                    log.warning("cannot look for batches (%s); tried again until it works", error)
                self._was_away = self._is_told = True
                return
            self._is_told = False
            if not found or self._is_stopping:
                return
            if found[0].id in mine:  # stalled longer than its lease, this process claimed its own batch again
                return
            self._begin(found[0])

    def _begin(self, batch: Batch) -> None:
        run = self._open_run(batch)
        task = asyncio.create_task(self._guarded(batch, run), name=f"batch {batch.id}")
        self._runs[task] = (batch, run)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._runs.pop(task, None)

    async def _guarded(self, batch: Batch, run: BatchRun) -> None:
        try:
            while not await self._catch_up():
                await self._sleep(LOOK_SECONDS)
                if self._is_stopping:
                    return
            await run.run()
        except Exception:
            log.exception("%s failed; it will be resumed in %.0f s", batch.id, LEASE_SECONDS)
