"""Responses written in the background (`background: true`): the caller gets an unfinished response at once, fetches it
until it is finished, and may cancel it.

All workers see the response. The request stays with the one that accepted it, and takes its place there until it ends.
Knows no store and no HTTP.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, Protocol

import msgspec

from backends.endpoints.responses_items import ResponseHead
from backends.formats.json_objects import NOT_JSON, decode_object, text_of
from gateway.access.keys import KeyRecord
from gateway.errors import BreakevenError, StoreDown
from gateway.kept_answers.background_callers import BackgroundStream, Hearer, Nobody
from gateway.kept_answers.kept_responses import KeptResponses, too_large_to_wait
from gateway.kept_answers.open_responses import Open, OpenResponses
from gateway.kept_answers.store_down import told_as_overloaded
from gateway.ledger.entry import tenant_of
from gateway.process.tasks import end_tasks, to_its_end
from gateway.request.run import Accepted, Caller, Incoming

log = logging.getLogger(__name__)
LOOK_SECONDS: Final = 1.0
"""How soon a worker notices that a response it writes was cancelled or deleted."""
LOOKS_PER_SIGN: Final = 20
"""Every so many looks it gives a sign of life."""


class Answers(Protocol):
    """The part of the pipeline that this file uses."""

    def answer(self, incoming: Incoming, caller: Caller) -> Coroutine[Any, Any, None]: ...

    def identify(self, incoming: Incoming) -> KeyRecord:
        """Raises RequestError."""
        ...


class _Asked(msgspec.Struct):
    background: object = None
    stream: object = None


_ASKED: Final = msgspec.json.Decoder(_Asked)


def is_in_background(incoming: Incoming) -> bool:
    """Whether its caller need not stay for the answer."""
    asked = _asked(incoming)
    return asked is not None and asked.background is True


def _asked(incoming: Incoming) -> _Asked | None:
    if incoming.operation != "responses" or b'"background"' not in incoming.body:
        return None
    try:
        return _ASKED.decode(incoming.body)
    except NOT_JSON:
        return None  # the next reader reports what is wrong


class BackgroundResponses:
    """One per worker process, in front of its pipeline."""

    def __init__(
        self, answers: Answers, kept: KeptResponses, opened: OpenResponses, *, look_seconds: float = LOOK_SECONDS
    ) -> None:
        self._answers = answers
        self._kept = kept
        self._opened = opened
        self._look_seconds = look_seconds

    async def answer(self, incoming: Incoming, caller: Caller) -> None:
        """Answers at once if the response is to be written in the background, and returns when that is done. Raises as
        the pipeline, before anything was sent."""
        asked = _asked(incoming)
        if asked is None or asked.background is not True or not self._kept.is_keeping:
            await self._answers.answer(incoming, caller)
        else:
            is_stream = asked.stream is True
            hearer = BackgroundStream(caller, self._opened) if is_stream else Nobody(caller)
            await self._answer_unattended(incoming, caller, hearer)

    async def _answer_unattended(self, incoming: Incoming, caller: Caller, hearer: Hearer) -> None:
        key = self._answers.identify(incoming)
        if len(incoming.body) > self._kept.largest_turn_bytes:
            raise too_large_to_wait(self._kept.largest_turn_bytes)
        accepted: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        apart = msgspec.structs.replace(incoming, cache_seconds=0, accepted=accepted.set_result)
        work = asyncio.create_task(self._answers.answer(apart, hearer))
        try:
            await asyncio.wait((work, accepted), return_when=asyncio.FIRST_COMPLETED)
            if not accepted.done():
                await work  # raises
            response = await self._open(tenant_of(key.team, key.id), incoming, accepted.result())
            caller.outlive()
            await self._follow(response, work, hearer)
        finally:
            await end_tasks((work,))

    async def _open(self, tenant: str, incoming: Incoming, accepted: Accepted) -> Open:
        fields = decode_object(incoming.body) or {}
        fields.pop("input", None)  # no document repeats it, and decoded it takes many times its bytes until the end
        previous = text_of(fields, "previous_response_id")
        head = ResponseHead(
            f"resp_{accepted.request_id}", self._opened.now(), fields, previous, is_kept=not accepted.is_brief
        )
        response = Open(tenant, head, accepted)
        with told_as_overloaded(
            "a response cannot be written in the background",
            "background: responses cannot be kept right now. Try again, or leave it out.",
        ):
            await self._opened.open(response)
        return response

    async def _follow(self, response: Open, work: asyncio.Task[None], hearer: Hearer) -> None:
        """Until the response is finished, in whatever way, from when its caller is told of it."""
        try:
            await hearer.begin(response)
            if await self._is_given_up(response, work):
                hearer.outcome = "cancelled"
        except BreakevenError as error:
            hearer.why = error
        except Exception:
            log.exception("the background response %s failed", response.response_id)
        finally:
            await to_its_end(self._finish(response, work, hearer))

    async def _finish(self, response: Open, work: asyncio.Task[None], hearer: Hearer) -> None:
        await end_tasks((work,))
        await hearer.end(await self._close(response, hearer))

    async def _close(self, response: Open, hearer: Hearer) -> bytes:
        """What became of it, unless its answer was kept."""
        try:
            return await self._opened.close(response, hearer.outcome, hearer.why)
        except StoreDown as error:
            log.warning("what became of a background response cannot be kept: %s (%s)", error, response.response_id)
            return response.document(hearer.outcome, hearer.why)

    async def _is_given_up(self, response: Open, work: asyncio.Task[None]) -> bool:
        """True once it was cancelled or deleted, False when the work is done. Raises what the work raises."""
        looks = 0
        while True:
            await asyncio.wait((work,), timeout=self._look_seconds)
            if work.done():
                await work
                return False
            looks += 1
            try:
                if await self._opened.is_unwanted(response):
                    return True
                if looks % LOOKS_PER_SIGN == 0:
                    await self._opened.sign(response)
            except StoreDown as error:
                log.warning("whether a background response is still wanted cannot be read: %s", error)
