"""A gateway whose model answers in the background once a test lets it, and a store that can fail."""

import asyncio
import json
from typing import Any

from backends.scripted import Outcome, ScriptedBackend, follow
from backends.translating import TranslatingBackend
from gateway.errors import StoreDown
from gateway.kept_answers.background_responses import BackgroundResponses
from gateway.kept_answers.kept_responses import KeptResponses
from gateway.kept_answers.memory_turns import MemoryTurns
from gateway.kept_answers.open_responses import OpenResponses
from gateway.ledger.entry import tenant_of
from gateway.request.run import Accepted, Incoming
from tests.rig import KEY, RecordingCaller, Rig

TENANT = tenant_of("red", "key-1")
ACCEPTED = Accepted("1", b"[]", None, None)


class FailingTurns(MemoryTurns):
    is_down = is_unreadable = False
    refused = 0

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(monotonic=lambda: self.now)
        self.names: set[str] = set()

    async def get(self, name: str, seconds: float | None) -> bytes | None:
        if self.is_unreadable:
            raise StoreDown("it is down")
        return await super().get(name, seconds)

    async def delete(self, name: str, *, owner: str = "") -> bool:
        self.names.discard(name)
        return await super().delete(name, owner=owner)

    async def put(self, name: str, value: bytes, seconds: float, *, owner: str = "") -> None:
        if self.is_down:
            self.refused += 1
            raise StoreDown("it is down")
        self.names.add(name)
        await super().put(name, value, seconds, owner=owner)


class Background:
    """A rig whose model a answers once `may_answer` is set, and nobody waits for it."""

    def __init__(self, *, look_seconds: float = 0.001) -> None:
        self.may_answer = asyncio.Event()
        self.store = FailingTurns()
        self.now = 1_000.0
        self.rig = Rig()
        slow = follow([Outcome(first_piece_delay_seconds=1.0)])
        self.rig.one = ScriptedBackend("one", slow, keeps_calls=True, sleep=self._until_it_may)
        self.rig.pipeline.backends = {"one": TranslatingBackend(self.rig.one), "two": TranslatingBackend(self.rig.two)}
        self.kept = KeptResponses(self.store, self.rig.pipeline.keys.conversation_secret)
        self.kept.again_seconds = 0.0
        self.rig.pipeline.kept_responses = self.kept
        self.opened = OpenResponses(self.kept, now=lambda: self.now)
        self.responses = BackgroundResponses(self.rig.pipeline, self.kept, self.opened, look_seconds=look_seconds)
        self.caller = RecordingCaller()

    async def _until_it_may(self, seconds: float) -> None:
        await self.may_answer.wait()

    def begin(self, **asked: object) -> asyncio.Task[None]:
        body = json.dumps({"model": "a", "input": "hello", "background": True, **asked}).encode()
        return asyncio.create_task(self.responses.answer(Incoming("responses", f"Bearer {KEY}", body), self.caller))

    async def begun(self, **asked: object) -> asyncio.Task[None]:
        task = self.begin(**asked)
        async with asyncio.timeout(60):
            while not (self.caller.is_complete and self.rig.one.calls):
                await asyncio.sleep(0)
        return task

    async def shown(self) -> dict[str, Any]:
        response_id = json.loads(self.caller.body)["id"]
        turn = await self.kept.find(TENANT, response_id)
        assert turn is not None
        return json.loads(await self.opened.shown(TENANT, response_id, turn))
