"""Sends requests to a fleet, over a fresh connection each time or over many at once, and keeps the answers."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.waiting import PATIENCE_SECONDS

T = TypeVar("T")
OF_EVERYBODY = "breakeven_requests_in_flight"
TIMEOUT = aiohttp.ClientTimeout(total=600)
PROMPT = "How many words does a question need to have, if nobody is going to read it? " * 2
"""Its estimate is more than the 20 tokens that the provider reports for every request."""


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def request_id(self) -> str:
        return self.headers["x-breakeven-request-id"]


@asynccontextmanager
async def connections(most: int) -> AsyncGenerator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=most), timeout=TIMEOUT) as session:
        yield session


async def chat(session: aiohttp.ClientSession, url: str, key: str, **changes: Any) -> Answered:
    body: dict[str, Any] = {"model": "auto", "messages": [{"role": "user", "content": PROMPT}], **changes}
    headers = {"authorization": f"Bearer {key}"}
    async with session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as response:
        text = await response.read()
        return Answered(response.status, {name.lower(): value for name, value in response.headers.items()}, text)


async def chat_afresh(urls: Sequence[str], key: str, times: int, **changes: Any) -> list[Answered]:
    """Sends `times` requests to each address, each over a new connection, so that the kernel spreads them over all
    workers."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True), timeout=TIMEOUT) as session:
        return [await chat(session, url, key, **changes) for url in urls for _ in range(times)]


async def of_every_worker(urls: Iterable[str], ask: Callable[[aiohttp.ClientSession, str], Awaitable[T]]) -> list[T]:
    """What each of the two workers at each address answers, however the kernel spreads new connections."""
    answers: list[T] = []
    for url in urls:
        met: set[str] = set()
        while len(met) < 2:
            async with connections(1) as session:
                if (worker := await _worker(session, url)) not in met:
                    met.add(worker)
                    answers.append(await ask(session, url))
    return answers


async def _worker(session: aiohttp.ClientSession, url: str) -> str:
    """The name of the worker at the other end, which lists its own sample first. The metric that is read is one that
    every worker has, even before it has served anyone."""
    async with session.get(f"{url}/metrics") as response:
        families = {family.name: family for family in text_string_to_metric_families(await response.text())}
    return families[OF_EVERYBODY].samples[0].labels["worker"]


async def until_known(urls: Sequence[str], key: str) -> None:
    """Waits until all workers know a key that was created at one of them; asks for the list of models, which costs
    nothing."""

    async def asked(session: aiohttp.ClientSession, url: str) -> int:
        async with session.get(f"{url}/v1/models", headers={"authorization": f"Bearer {key}"}) as answer:
            return answer.status

    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with contextlib.suppress(aiohttp.ClientConnectionError):  # new workers may not listen yet
                if set(await of_every_worker(urls, asked)) == {200}:
                    return
            await asyncio.sleep(0.05)


async def chat_with_every_worker(urls: Iterable[str], key: str) -> list[Answered]:
    return await of_every_worker(urls, lambda session, url: chat(session, url, key))


@dataclass(slots=True)
class Load:
    """Callers that send one request after the other until told to stop, even after a connection broke."""

    urls: Sequence[str]
    key: str
    callers: int = 16
    answered: list[str] = field(default_factory=list[str])
    broken: int = 0
    refused: list[Answered] = field(default_factory=list[Answered])
    longest_seconds: float = 0.0
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        async with connections(self.callers) as session:
            await asyncio.gather(*(self._ask(session, number) for number in range(self.callers)))

    def stop(self) -> None:
        self._stopped.set()

    async def _ask(self, session: aiohttp.ClientSession, number: int) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                got = await chat(session, self.urls[number % len(self.urls)], self.key, max_tokens=16)
            except aiohttp.ClientError:
                self.broken += 1
                await asyncio.sleep(0.05)
                continue
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
            if got.status == 200:
                self.answered.append(got.request_id)
            else:
                self.refused.append(got)
