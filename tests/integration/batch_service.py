"""A service with files and batches over SQLite, in front of scripted backends, for several test files."""

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
from openai.types import Batch
from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from backends.protocol import Call, Reply
from backends.scripted import Outcome, Script, ScriptedBackend, follow
from backends.translating import TranslatingBackend
from gateway.access.keys import KeyRecord
from gateway.api.batches import build_batches_router
from gateway.api.files import build_files_router
from gateway.api.message_batches import build_message_batches_router
from gateway.batches.bounds import BatchBounds
from gateway.clock import PatientClock
from gateway.composition.batches import open_batches
from gateway.instants import HOUR_US
from gateway.storage.database import open_database
from gateway.storage.sql.batches import SqlBatches
from gateway.storage.sql.files import SqlFiles
from gateway.storage.sql.sealed import Seal
from gateway.storage.tables.content import batches as table
from gateway.storage.tables.content import file_parts
from tests.integration.service import Service, client_of
from tests.live_server import serving
from tests.newest_schema import make_newest
from tests.rig import KEY, Rig

CHATS = "/v1/chat/completions"


BOUNDS = BatchBounds(
    at_once=4,
    leave_free_share=0.3,
    most_lines=200,
    most_line_bytes=10_000,
    most_file_bytes=100_000,
    most_stored_bytes=150_000,
    keep_days=30,
)


async def nothing_new() -> bool:
    return True


async def briefly(seconds: float) -> None:
    await asyncio.sleep(min(seconds, 0.02))


class Stores:
    """The two stores that batches need."""

    def __init__(self, database: AsyncEngine, now_us: Callable[[], int]) -> None:
        self.files = SqlFiles(database, Seal(bytes(32), "pepper"), now_us=now_us)
        self.batches = SqlBatches(database, self.files, now_us=now_us)


class Batches:
    """A service with files and batches. `working` starts the processing of batches."""

    def __init__(self, rig: Rig, database: AsyncEngine, bounds: BatchBounds) -> None:
        self.rig, self.database = rig, database
        self._later_us = self._ahead_us = 0
        self.clock = PatientClock(self._now_us, lambda: (self._now_us() - self._ahead_us) / 1e6)
        self.stores = Stores(database, self._now_us)
        rig.pipeline.now_us = self._now_us
        rig.add_key("bk-mate", KeyRecord("key-3", "mate", "app", team="red"))
        rig.add_key("bk-other", KeyRecord("key-4", "other", "app", team="blue"))
        self.service = Service(rig)
        self.runner = open_batches(
            rig.pipeline, self.stores, bounds, nothing_new, name="first", clock=self.clock, sleep=briefly
        )
        rest, (files, batches) = self.service.rest, (self.stores.files, self.stores.batches)
        rest.include_router(build_files_router(rig.pipeline, files, bounds))
        for build in (build_batches_router, build_message_batches_router):
            rest.include_router(build(rig.pipeline, files, batches, bounds, lambda: self.runner.wake()))
        self.url = ""

    def _now_us(self) -> int:
        return time.time_ns() // 1000 + self._later_us + self._ahead_us

    def hours_later(self, hours: int) -> None:
        self._later_us += hours * HOUR_US

    def put_clock(self, *, hours_ahead: int) -> None:
        """Sets the clock relative to the real time, whatever it was set to before."""
        self._ahead_us = hours_ahead * HOUR_US

    def client(self, key: str = KEY) -> openai.AsyncOpenAI:
        return client_of(self.url, key)

    def anthropic(self, key: str = KEY) -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(api_key=key, base_url=self.url, max_retries=0)

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[asyncio.Task[None]]:
        """Runs batches; yields the task that looks for them. If that is cancelled, batches in progress go on."""
        task = asyncio.create_task(self.runner.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.runner.stop(10.0)


@asynccontextmanager
async def opened(directory: Path, one: Script | None = None, bounds: BatchBounds = BOUNDS) -> AsyncGenerator[Batches]:
    url = f"sqlite+aiosqlite:///{directory / 'test.db'}"
    await make_newest(url)
    database = open_database(url)
    batches = Batches(Rig(one), database, bounds)
    async with serving(batches.service.app) as batches.url:
        yield batches
    await database.dispose()


def request(number: int, **changes: Any) -> dict[str, Any]:
    body = {"model": "a", "messages": [{"role": "user", "content": f"hello {number}"}]}
    return {"custom_id": f"request-{number}", "method": "POST", "url": CHATS, "body": body | changes}


def jsonl(*requests: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in requests)


async def begun(client: openai.AsyncOpenAI, *requests: dict[str, Any], **said: Any) -> Batch:
    file = await client.files.create(file=("in.jsonl", jsonl(*requests)), purpose="batch")
    asked: dict[str, Any] = {"endpoint": CHATS, "completion_window": "24h"} | said
    return await client.batches.create(input_file_id=file.id, **asked)


async def until(
    client: openai.AsyncOpenAI, batch: Batch, holds: Callable[[Batch], bool] = lambda one: one.completed_at is not None
) -> Batch:
    async with asyncio.timeout(60):
        while not holds(found := await client.batches.retrieve(batch.id)):
            await asyncio.sleep(0.05)
    return found


async def until_heard(batches: Batches) -> None:
    """Waits until the runner of the only batch knows of earlier changes: it reads with every save, and saves again only
    after it has processed what it read."""
    times, seen = 0, await _leased_until(batches)
    async with asyncio.timeout(60):
        while times < 2:
            await asyncio.sleep(0.01)
            before, seen = seen, await _leased_until(batches)
            times += seen != before


async def _leased_until(batches: Batches) -> int:
    async with batches.database.connect() as connection:
        return (await connection.execute(select(table.c.leased_until_us))).scalar_one()


async def lines(client: openai.AsyncOpenAI, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id is not None
    text = (await client.files.content(file_id)).text
    return [json.loads(line) for line in text.splitlines()]


class Held(ScriptedBackend):
    """Answers a number of calls, and makes the others wait until `goes_on`."""

    def __init__(self, answers: int) -> None:
        super().__init__("one", follow([Outcome()]))
        self.goes_on = asyncio.Event()
        self.waiting = 0
        self._left = answers

    async def open(self, call: Call) -> Reply:
        self._left -= 1
        if self._left < 0:
            self.waiting += 1
            await self.goes_on.wait()
        return await super().open(call)


def hold(batches: Batches, answers: int) -> Held:
    held = Held(answers)
    batches.rig.pipeline.backends = {**batches.rig.pipeline.backends, "one": TranslatingBackend(held)}
    return held


async def lapse(batches: Batches) -> None:
    """Makes all leases expire."""
    async with batches.database.begin() as connection:
        await connection.execute(update(table).values(runner=None, leased_until_us=0))


LARGE = 24 << 20


async def large_parts() -> AsyncGenerator[bytes]:
    """More than is read at once and than a connection buffers, and incompressible."""
    for _ in range(LARGE >> 20):
        yield os.urandom(1 << 20)


async def download(url: str, key: str, meanwhile: Callable[[], Awaitable[object]]) -> None:
    """Downloads a file, and lets something happen after the first part."""
    async with (
        httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=120) as client,
        client.stream("GET", url) as answer,
    ):
        assert answer.status_code == 200
        async for _ in answer.aiter_raw():
            await meanwhile()


async def lose_parts(batches: Batches) -> None:
    """Makes files disappear right after they are found."""
    async with batches.database.begin() as connection:
        await connection.execute(delete(file_parts))


def counts(batch: Batch) -> tuple[int, int, int]:
    said = batch.request_counts
    assert said is not None
    return said.total, said.completed, said.failed
