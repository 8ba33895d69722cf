"""Kept responses that are still being written: what they look like meanwhile, who writes them, and whether anybody
wants them still. Knows no store and no HTTP.

Each record has one writer, so nothing is lost where two workers write at a time: the response and the sign of life
belong to whoever writes the response, the mark that it is unwanted to whoever cancels or deletes it.
"""

import time
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from backends.endpoints.responses_items import ResponseHead
from backends.formats.json_objects import Fields, decode_object, text_of
from gateway.errors import BreakevenError, RateLimitExceeded
from gateway.kept_answers.kept_events import EVENT_SECONDS, KeptEvents
from gateway.kept_answers.kept_turns import BRIEF_SECONDS, KeptTurns, Turn, mark_name, name_of
from gateway.kept_answers.record_store import pseudonym
from gateway.request.run import Accepted

DEAD_SECONDS: Final = 60.0
"""How long after its writer's last sign of life a response counts as given up. Replicas' clocks differ by less."""
GIVEN_UP: Final = "The gateway that was writing this response ended before it was finished. Ask again."
CANCELLED, DELETED = b"cancelled", b"deleted"
STOPPED: Final = "This response could not be finished, or not be kept. Ask again, or stream it."

FAILED: Final = "response.failed"

Outcome = Literal["in_progress", "incomplete", "cancelled", "failed"]


class Open(msgspec.Struct, frozen=True):
    """A response being written, and its request."""

    tenant: str
    head: ResponseHead
    accepted: Accepted

    @property
    def response_id(self) -> str:
        return self.head.response_id

    def turn(self, response: bytes, *, is_open: bool = False) -> Turn:
        asked = self.accepted
        return Turn(response, asked.items, asked.previous, asked.conversation_id, is_open, asked.is_brief)

    def document(self, outcome: Outcome, why: BreakevenError | None = None) -> bytes:
        """What its caller sees of it, in JSON; `why` it failed."""
        shown = self.head.document(text_of(self.head.asked, "model") or "", [], "in_progress", None)
        if outcome == "in_progress" and (named := self.head.asked.get("conversation")) is not None:
            shown["conversation"] = {"id": named} if isinstance(named, str) else named
        return msgspec.json.encode(shown | _outcome(outcome, STOPPED if why is None else str(why), why))


class OpenResponses:
    """Over the store of `kept`. `now` is Unix seconds. Everything may raise StoreDown."""

    def __init__(self, kept: KeptTurns, *, now: Callable[[], float] = time.time) -> None:
        self._kept = kept
        self._store = kept.store
        self._now = now

    def now(self) -> int:
        """Unix seconds."""
        return int(self._now())

    async def open(self, response: Open) -> None:
        await self.sign(response)
        turn = response.turn(response.document("in_progress"), is_open=True)
        await self._kept.put(response.tenant, response.response_id, turn)

    async def sign(self, response: Open) -> None:
        """A sign of life of whoever writes it."""
        await self._put(_sign(response.tenant, response.response_id), repr(self._now()).encode(), response.tenant)

    async def is_unwanted(self, response: Open) -> bool:
        """Whether it was cancelled or deleted."""
        return await self._kept.mark_of(response.tenant, response.response_id) is not None

    def events(self, tenant: str, response_id: str, *, is_brief: bool = False) -> KeptEvents:
        return KeptEvents(self._kept, tenant, response_id, BRIEF_SECONDS if is_brief else EVENT_SECONDS)

    async def is_kept(self, response: Open) -> bool:
        return await self._kept.find(response.tenant, response.response_id) is not None

    async def close(self, response: Open, outcome: Outcome, why: BreakevenError | None = None) -> bytes:
        """Keeps what became of it, which is returned, unless its answer was kept. What was cancelled or deleted
        meanwhile stays so."""
        turn = await self._kept.find(response.tenant, response.response_id)
        mark = await self._kept.mark_of(response.tenant, response.response_id)
        document = response.document(outcome if mark is None else "cancelled", why)
        if turn is not None and mark == DELETED:
            await self._kept.forget(response.tenant, response.response_id)
        elif turn is not None and (turn.is_open or mark == CANCELLED):
            await self._kept.put(response.tenant, response.response_id, response.turn(document))
        return document

    async def shown(self, tenant: str, response_id: str, turn: Turn) -> bytes:
        """A response, finished or not, in JSON."""
        if await self._kept.mark_of(tenant, response_id) is not None:  # its writer may have kept an answer all the same
            return _changed(turn, "cancelled")
        if not turn.is_open:
            return turn.response
        signed = await self._store.get(_sign(tenant, response_id), self._kept.seconds)
        if signed is None or self._now() - float(signed) > DEAD_SECONDS:
            return _changed(turn, "failed", GIVEN_UP)
        return turn.response

    async def find(self, tenant: str, response_id: str) -> bytes | None:
        """The same, if it is kept."""
        turn = await self._kept.find(tenant, response_id)
        return None if turn is None else await self.shown(tenant, response_id, turn)

    async def cancel(self, tenant: str, response_id: str) -> None:
        """Whoever writes it stops soon."""
        await self._put(mark_name(tenant, response_id), CANCELLED, tenant)

    async def delete(self, tenant: str, response_id: str, *, is_open: bool) -> None:
        """Likewise, and nothing of it is kept. One that is finished is only forgotten."""
        if is_open:
            await self._put(mark_name(tenant, response_id), DELETED, tenant)
        await self._kept.forget(tenant, response_id)
        await self.events(tenant, response_id).forget()

    async def _put(self, name: str, value: bytes, tenant: str) -> None:
        await self._store.put(name, value, self._kept.seconds, owner=pseudonym(tenant))


def is_background(turn: Turn) -> bool:
    """Whether it was written in the background, so that cancelling it is no mistake, even if it is too late."""
    return (decode_object(turn.response) or {}).get("background") is True


def failed_event(document: bytes, *, number: int) -> bytes:
    """The end of a stream whose response failed or was cancelled."""
    event = {"type": FAILED, "sequence_number": number, "response": msgspec.Raw(document)}
    return b"event: %b\ndata: %b\n\n" % (FAILED.encode(), msgspec.json.encode(event))


def _changed(turn: Turn, outcome: Outcome, message: str = "") -> bytes:
    return msgspec.json.encode((decode_object(turn.response) or {}) | _outcome(outcome, message))


def _outcome(outcome: Outcome, message: str, why: BreakevenError | None = None) -> Fields:
    code = "rate_limit_exceeded" if isinstance(why, RateLimitExceeded) else "server_error"
    return {
        "status": outcome,
        "error": {"code": code, "message": message} if outcome == "failed" else None,
        "incomplete_details": {"reason": "max_output_tokens"} if outcome == "incomplete" else None,
    }


def _sign(tenant: str, response_id: str) -> str:
    return name_of(tenant, f"{response_id}\0sign of life")
