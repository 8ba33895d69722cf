"""A caller that leaves at a chosen moment, and stores and backends that take some moments."""

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Coroutine, Generator, Mapping, Sequence
from functools import partial
from typing import Any

from backends.protocol import Backend, BackendHealth, Call, Chunk, Reply
from gateway.kept_answers.idempotency import Sink
from gateway.ledger.entry import Entry
from gateway.limits.counters import Account, Grant, Holding, Places, Rate, Shortage
from gateway.limits.local_counters import LocalCounters
from tests.memory_ledger import MemoryLedger
from tests.rig import RecordingCaller


class Leaving:
    """Awaits `work`, and cancels the task that does at its n-th wait: at once, or when what it waits for has just
    come."""

    def __init__(self, work: Coroutine[Any, Any, None], at: int, *, is_late: bool) -> None:
        self._work, self._at, self._is_late = work, at, is_late
        self.waits = 0

    def __await__(self) -> Generator[Any]:
        task = asyncio.current_task()
        assert task is not None
        step = partial(self._work.send, None)
        while True:
            try:
                wait = step()
            except StopIteration:
                return
            self.waits += 1
            if self.waits == self._at and self._is_late and wait is not None:
                wait.add_done_callback(partial(_cancel, task))
            elif self.waits == self._at:
                task.cancel()
            try:
                yield wait
            except BaseException as error:  # noqa: BLE001 - all of them are the work's
                step = partial(self._work.throw, error)
            else:
                step = partial(self._work.send, None)


class Slow:
    """A store whose commands take some moments, every other one fewer than the one before, and are carried out even if
    nobody waits for them any more."""

    def __init__(self, inner: object) -> None:
        self._inner = inner
        self._moments = itertools.cycle((5, 1))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def carried_out(*told: Any, **named: Any) -> Any:
            for _ in range(next(self._moments)):
                await asyncio.sleep(0)
            return await found(*told, **named)

        async def asked(*told: Any, **named: Any) -> Any:
            return await asyncio.shield(asyncio.create_task(carried_out(*told, **named)))

        return asked


class SlowCounters(LocalCounters):
    async def enter(self, name: str, places: Sequence[Places]) -> Places | None:
        full = await super().enter(name, places)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.leave(name)
            raise
        return full

    async def take(self, rates: Sequence[Rate], left: list[float] | None = None) -> Shortage | None:
        await asyncio.sleep(0)
        return await super().take(rates, left)

    async def lease(self, account: Account, *, limit: int, holding: Holding, need: int, want: int) -> Grant:
        await asyncio.sleep(0)
        grant = await super().lease(account, limit=limit, holding=holding, need=need, want=want)
        await asyncio.sleep(0)
        return grant


class SlowReply:
    """Takes a moment to close."""

    def __init__(self, inner: Reply) -> None:
        self._inner = inner

    @property
    def content_type(self) -> str:
        return self._inner.content_type

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return aiter(self._inner)

    async def aclose(self) -> None:
        await self._inner.aclose()
        await asyncio.sleep(0)


class SlowBackend:
    """Takes some moments to answer. If it `is_deaf`, it answers although it was cancelled."""

    is_simulated = True

    def __init__(self, inner: Backend, moments: int = 1, *, is_deaf: bool = False) -> None:
        self._inner, self._moments, self._is_deaf = inner, moments, is_deaf

    @property
    def name(self) -> str:
        return self._inner.name

    async def open(self, call: Call) -> Reply:
        for _ in range(self._moments):
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if not self._is_deaf:
                    raise
        return SlowReply(await self._inner.open(call))

    async def health(self) -> BackendHealth:
        return await self._inner.health()

    async def aclose(self) -> None: ...


class SlowLedger(MemoryLedger):
    async def settle(self, entry: Entry) -> None:
        await super().settle(entry)
        await asyncio.sleep(0)


class SlowCaller(RecordingCaller):
    """Passes the answer on to `sink`, if any."""

    def __init__(self, sink: Sink | None = None) -> None:
        super().__init__()
        self._sink = sink

    async def start(self, *, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        await super().start(status=status, content_type=content_type, headers=headers)
        await asyncio.sleep(0)
        if self._sink is not None:
            await self._sink.start(status, ())

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        await super().send(payload, chunk=chunk, is_last=is_last)
        await asyncio.sleep(0)
        if self._sink is not None:
            await self._sink.send(payload, is_last=is_last)


def _cancel(task: asyncio.Task[Any], _: object) -> None:
    task.cancel()
