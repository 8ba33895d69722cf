"""A rig behind HTTP, and one in front of a scripted provider."""

from dataclasses import dataclass
from typing import Any

import anthropic
import openai
from openai.types.responses import Response
from prometheus_client import CollectorRegistry

from gateway.api.app import Root, build_fastapi
from gateway.api.public import build_public_router
from gateway.api.shedding import Load
from gateway.kept_answers.idempotency import Idempotency
from gateway.kept_answers.memory_idempotency import MemoryIdempotency
from gateway.ledger.entry import Entry
from gateway.telemetry.metrics import Metrics
from tests.rig import KEY, Rig
from tests.scripted_provider import ScriptedProvider
from tests.waiting import until

MESSAGES: Any = [{"role": "user", "content": "hello"}]  # each client has a type of its own for them


class Service:
    """A rig behind HTTP. `problems` and `warnings` are those reported by /readyz."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.metrics = Metrics(rig.ledger)
        rig.pipeline.observer = self.metrics
        self.rest = build_fastapi()
        self.rest.include_router(
            build_public_router(rig.pipeline, self.registry, lambda: self.problems, lambda: self.warnings)
        )
        self.load = Load()
        idempotency = Idempotency(MemoryIdempotency(), lambda given: rig.pipeline.keys.authenticate(given, 0).id)
        self.app = Root(rig.pipeline, self.rest, max_body_bytes=1_000_000, idempotency=idempotency, load=self.load)
        self.url = ""

    @property
    def registry(self) -> CollectorRegistry:
        return self.metrics.registry

    async def entry(self) -> Entry:
        """The entry, as soon as it is booked."""
        await until(lambda: self.rig.ledger.entries)
        return self.rig.entry

    def client(self) -> openai.AsyncOpenAI:
        return client_of(self.url)


@dataclass(frozen=True, slots=True)
class Passage:
    """A gateway in front of one provider."""

    service: Service
    provider: ScriptedProvider
    url: str

    def openai(self) -> openai.AsyncOpenAI:
        return client_of(self.url)

    def anthropic(self) -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(api_key=KEY, base_url=self.url, max_retries=0)

    async def entry(self) -> Entry:
        return await self.service.entry()


def client_of(url: str, key: str = KEY) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key=key, base_url=f"{url}/v1", max_retries=0)


async def responded(client: openai.AsyncOpenAI, *, is_stream: bool, **asked: Any) -> Response:
    if not is_stream:
        return await client.responses.create(model="a", **asked)
    async with client.responses.stream(model="a", **asked) as stream:
        return await stream.get_final_response()
