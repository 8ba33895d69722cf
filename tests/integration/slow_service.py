"""A gateway over HTTP whose model answers once a test lets it."""

import asyncio
from typing import Any

from openai.types.responses import Response

from backends.scripted import Outcome, ScriptedBackend, follow
from backends.translating import TranslatingBackend
from gateway.access.keys import KeyRecord
from gateway.api.stored_responses import build_stored_responses_router
from gateway.kept_answers.kept_responses import KeptResponses
from gateway.kept_answers.memory_turns import MemoryTurns
from tests.integration.service import Service
from tests.rig import Rig

SLOW = Outcome(first_piece_delay_seconds=1.0)


class Slow(Service):
    """Model a answers once `may_answer` is set."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.may_answer = asyncio.Event()
        rig = Rig()
        rig.one = ScriptedBackend("one", follow(outcomes or [SLOW]), keeps_calls=True, sleep=self._until_it_may)
        rig.pipeline.backends = {"one": TranslatingBackend(rig.one), "two": TranslatingBackend(rig.two)}
        rig.pipeline.kept_responses = KeptResponses(MemoryTurns(), rig.pipeline.keys.conversation_secret)
        rig.add_key("bk-other", KeyRecord("key-4", "other", "app", team="blue"))
        super().__init__(rig)
        self.rest.include_router(build_stored_responses_router(rig.pipeline))

    async def _until_it_may(self, seconds: float) -> None:
        if seconds:
            await self.may_answer.wait()

    async def begin(self, **asked: Any) -> Response:
        """From a client that is gone with the answer."""
        async with self.client() as client:
            wanted: dict[str, Any] = {"model": "a", "input": "hello", "background": True, **asked}
            return await client.responses.create(**wanted)

    async def finished(self, response_id: str) -> Response:
        async with self.client() as client, asyncio.timeout(60):
            while (found := await client.responses.retrieve(response_id)).status == "in_progress":
                await asyncio.sleep(0.01)
            return found
