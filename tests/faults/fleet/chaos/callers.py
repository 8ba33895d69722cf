"""Callers that send requests until told to stop, and a record of all their answers, with which the books are
compared."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp

TIMEOUT = aiohttp.ClientTimeout(total=600)
MAX_TOKENS = 16
REST_SECONDS = 0.1
DONE = b"data: [DONE]"
STREAMED, LEFT = 0.5, 0.15
"""The share of requests that are streams, and the share of streams whose caller leaves in the middle."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of a key, or of a team whose keys share it; with `limit_pico_usd` None there is no limit."""

    name: str
    keys: tuple[str, ...]
    limit_pico_usd: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that ended as it should, as its caller saw it. `cost_usd` is None for a stream, which does not report
    it."""

    request_id: str
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    cost_usd: str | None


@dataclass(slots=True)
class Told:
    """What all callers together received."""

    sent: Counter[str] = field(default_factory=Counter[str])
    answers: list[Answer] = field(default_factory=list[Answer])
    begun: list[str] = field(default_factory=list[str])
    """Ids of requests that were answered with 200 but not to the end: something broke, or their caller left."""
    statuses: Counter[int] = field(default_factory=Counter[int])
    used_up: set[str] = field(default_factory=set[str])
    broken: int = 0

    def summary(self) -> dict[str, object]:
        return {
            "sent": self.sent.total(),
            "answered": len(self.answers),
            "begun": len(self.begun),
            "broken": self.broken,
            "statuses": dict(sorted(self.statuses.items())),
            "used_up_budgets": len(self.used_up),
        }


class Callers:
    """Each caller uses one replica, one request after the other; every other caller takes the first budget with money
    left."""

    def __init__(self, urls: Sequence[str], free: Budget, budgets: Sequence[Budget], *, count: int, seed: int) -> None:
        self.told = Told()
        self._urls = urls
        self._free = free
        self._budgets = budgets
        self._count = count
        self._seed = seed
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        connector = aiohttp.TCPConnector(limit=self._count)
        async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT) as session, asyncio.TaskGroup() as group:
            for number in range(self._count):
                group.create_task(self._ask_on(session, number))

    def stop(self) -> None:
        """Starts no new requests; `run` ends when those under way have ended."""
        self._stopped.set()

    async def _ask_on(self, session: aiohttp.ClientSession, number: int) -> None:
        chance = random.Random(self._seed * 1000 + number)
        url = self._urls[number % len(self._urls)]
        while not self._stopped.is_set():
            budget = self._free if number // len(self._urls) % 2 else self._with_money()
            try:
                await self._ask(session, url, budget, chance)
            except (aiohttp.ClientError, ConnectionError):
                self.told.broken += 1
                await asyncio.sleep(REST_SECONDS)

    def _with_money(self) -> Budget:
        return next((one for one in self._budgets if one.name not in self.told.used_up), self._free)

    async def _ask(self, session: aiohttp.ClientSession, url: str, budget: Budget, chance: random.Random) -> None:
        is_stream = chance.random() < STREAMED
        body: dict[str, Any] = {
            "model": "auto",
            "max_tokens": MAX_TOKENS,
            "messages": [{"role": "user", "content": "Say a word or two. " * chance.randrange(1, 20)}],
        }
        if is_stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        headers = {"authorization": f"Bearer {chance.choice(budget.keys)}"}
        self.told.sent[budget.name] += 1
        async with session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as response:
            self.told.statuses[response.status] += 1
            if response.status != 200:
                await self._refused(response, budget)
                return
            request_id = response.headers["x-breakeven-request-id"]
            leaves_after = chance.randrange(4) if is_stream and chance.random() < LEFT else None
            try:
                answer = await (_read_stream(response, leaves_after) if is_stream else _read(response))
            except (aiohttp.ClientError, ConnectionError):
                self.told.begun.append(request_id)
                raise
            if answer is None:
                self.told.begun.append(request_id)
            else:
                self.told.answers.append(answer)

    async def _refused(self, response: aiohttp.ClientResponse, budget: Budget) -> None:
        error = json.loads(await response.read())["error"]
        if error["code"] == "insufficient_quota":
            self.told.used_up.add(budget.name)
        else:
            await asyncio.sleep(REST_SECONDS)


async def _read(response: aiohttp.ClientResponse) -> Answer | None:
    return _answer(response, json.loads(await response.read())["usage"])


async def _read_stream(response: aiohttp.ClientResponse, leaves_after: int | None) -> Answer | None:
    """None if the stream broke with an error, or its caller left before its end."""
    usage: Any = None
    events = 0
    async for line in response.content:
        if not line.startswith(b"data: "):
            continue
        if line.startswith(DONE):
            return _answer(response, usage)
        if events == leaves_after:
            response.close()
            return None
        events += 1
        event = cast("dict[str, Any]", json.loads(line.removeprefix(b"data: ")))
        usage = event.get("usage") or usage
    return None


def _answer(response: aiohttp.ClientResponse, usage: Any) -> Answer:
    return Answer(
        response.headers["x-breakeven-request-id"],
        usage["prompt_tokens"],
        usage["prompt_tokens_details"]["cached_tokens"],
        usage["completion_tokens"],
        response.headers.get("x-breakeven-cost-usd"),
    )
