"""Responses that the gateway stores for models without a Responses API: later requests may refer to them
(`previous_response_id`, `item_reference`), and the references are replaced by their content.

Each is one turn that names the turn before it (kept_turns.py). Knows no store and no HTTP.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, cast

import msgspec

from backends.formats.json_objects import NOT_JSON, Fields, decode_object
from backends.formats.json_splice import VALUES, NotAnObject, splice
from gateway.errors import BodyTooLarge, InvalidRequest, Overloaded, StoreDown
from gateway.kept_answers.conversation_items import (
    items_of,
    joined,
    output_of,
    parse_items,
    placed_items,
    require_calls,
    shown,
)
from gateway.kept_answers.kept_conversations import Belonging
from gateway.kept_answers.kept_turns import TRIES, KeptTurns, Turn, TurnStore
from gateway.kept_answers.store_down import told_as_overloaded
from gateway.request.many_values import require_bearable
from gateway.request.run import Accepted, Incoming

log = logging.getLogger(__name__)
DAY_SECONDS: Final = 86_400.0
LARGEST_TURN_BYTES: Final = 8 << 20
"""The most for a turn's input and response together; a larger one is not kept."""
REST_SECONDS: Final = 5.0
"""How long nothing is kept after a store failure, so that answers do not wait for it again and again."""
_PREVIOUS: Final = "previous_response_id"
_CONVERSATION: Final = "conversation"
_BACKGROUND: Final = ("background", "background_options")
_REFERENCE: Final = "item_reference"
_told = partial(
    told_as_overloaded,
    "kept responses cannot be read",
    "The response that this request continues cannot be read right now; try again.",
)


class Resumed(msgspec.Struct, frozen=True):
    """What to keep of a request to the Responses API. `is_kept` is False if the caller opted out. `belonging` is the
    conversation of which it is a turn. If nobody waits for the answer, it `is_background`, and `is_brief` if the caller
    opted out."""

    tenant: str
    items: bytes
    previous: str | None
    is_kept: bool
    belonging: Belonging | None = None
    is_background: bool = False
    is_brief: bool = False

    @property
    def conversation_id(self) -> str | None:
        return None if self.belonging is None else self.belonging.conversation_id

    def accepted(self, request_id: str) -> Accepted:
        return Accepted(request_id, self.items, self.previous, self.conversation_id, self.is_brief)


class _Asked(msgspec.Struct):
    input: msgspec.Raw = msgspec.Raw(b"[]")
    store: object = None
    previous_response_id: object = None
    background: object = None


_ASKED: Final = msgspec.json.Decoder(_Asked)


class KeptResponses(KeptTurns):
    """One per worker process, over a store that may be shared. `secret` returns a tenant's 32 bytes; `most_bytes`
    limits a request with everything it refers to, `most_added_bytes` what references add to all requests in progress;
    if `seconds` is 0, nothing is kept."""

    def __init__(
        self,
        store: TurnStore,
        secret: Callable[[str], bytes],
        *,
        seconds: float = DAY_SECONDS,
        most_bytes: int = 32 << 20,
        most_added_bytes: int = 512 << 20,
        largest_turn_bytes: int = LARGEST_TURN_BYTES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(store, secret, seconds)
        self.largest_turn_bytes = largest_turn_bytes
        self._most_bytes = most_bytes
        self._most_added_bytes = most_added_bytes
        self._added_bytes = 0
        self._monotonic = monotonic
        self._resting_until = 0.0

    @property
    def is_keeping(self) -> bool:
        return self.seconds > 0

    async def resume(
        self, incoming: Incoming, tenant: str, belonging: Belonging | None = None
    ) -> tuple[Incoming, Resumed | None]:
        """The request with references replaced by their content, preceded by the items of its conversation, if any.
        References to what is not kept here stay as they are.

        Raises InvalidRequest if an earlier turn is gone, BodyTooLarge, and Overloaded while the store is unreachable.
        """
        require_bearable(incoming.body)
        try:
            asked = _ASKED.decode(incoming.body)
        except NOT_JSON:
            return incoming, None  # the next reader reports what is wrong
        if not isinstance(asked.background, bool | None):
            raise InvalidRequest("background: must be true or false.", param="background")
        if not self.seconds:
            return incoming, None
        items = items_of(bytes(asked.input))
        if items is None:
            return incoming, None
        with _told():
            turns = await self._turns(tenant, asked.previous_response_id)
            referred = await self.dereferenced(tenant, items)
        previous = cast(str, asked.previous_response_id) if turns else None
        is_background, is_stored = incoming.accepted is not None, asked.store is not False
        is_kept = (is_stored or is_background) and len(referred) <= self.largest_turn_bytes
        if is_background and not is_kept:
            raise too_large_to_wait(self.largest_turn_bytes)
        resumed = Resumed(
            tenant, referred, previous, is_kept, belonging, is_background, is_brief=is_background and not is_stored
        )
        if belonging is not None:
            self._require_appendable(referred)
        elif referred is items and not turns and asked.background is not True:
            return incoming, resumed
        before = [part for turn in turns for part in (turn.items, output_of(turn.response))]
        if belonging is not None:
            before = [belonging.items]
        if turns or belonging is not None:
            require_calls(before, referred)
        left_out = [_PREVIOUS] * bool(turns) + [_CONVERSATION] * (belonging is not None)
        if asked.background is True:  # we wait for what our callers need not wait for
            left_out += _BACKGROUND
        body = self._replaced(incoming.body, joined([*before, referred]), left_out)
        return msgspec.structs.replace(incoming, body=body), resumed

    def _require_appendable(self, items: bytes) -> None:
        """Rejects input that could not be stored, before the model is called."""
        parse_items(items, (), param="input")
        if len(items) > self.largest_turn_bytes:
            raise BodyTooLarge(
                f"A turn of a conversation may have at most {self.largest_turn_bytes:,} bytes of input. Send less at "
                "a time, or the whole conversation without `conversation`.",
                code="body_too_large",
            )

    async def dereferenced(self, tenant: str, items: bytes) -> bytes:
        """A JSON array of items with references replaced by the items of kept responses. Raises as `resume`."""
        if not self.seconds or _REFERENCE.encode() not in items:
            return items
        with _told():
            return await self._with_references(tenant, items)

    @contextmanager
    def room(self, added_bytes: int) -> Generator[None]:
        """Reserves memory for what was added to a request while it is in progress: hundreds of short requests may each
        expand to megabytes, and only their received bytes were counted. Raises Overloaded."""
        if self._added_bytes + added_bytes > self._most_added_bytes:
            raise Overloaded(
                "This gateway accepts no more requests for now: the earlier turns of those under way already take "
                f"{self._most_added_bytes >> 20:,} MB. Try again in a moment.",
                retry_after_seconds=1.0,
            )
        self._added_bytes += added_bytes
        try:
            yield
        finally:
            self._added_bytes -= added_bytes

    async def keep(self, resumed: Resumed, response_id: str, response: bytes) -> None:
        """Keeps one response. If that fails, the caller can continue only by sending the whole conversation. One in the
        background, which nobody else has, is tried again for some seconds."""
        is_resting = self._monotonic() < self._resting_until and not resumed.is_background
        if len(response) + len(resumed.items) > self.largest_turn_bytes or is_resting:
            return
        turn = Turn(response, resumed.items, resumed.previous, resumed.conversation_id, is_brief=resumed.is_brief)
        for left in reversed(range(TRIES if resumed.is_background else 1)):
            try:
                await self.put(resumed.tenant, response_id, turn)
                return
            except StoreDown as error:
                self._resting_until = self._monotonic() + REST_SECONDS
                log.warning("responses are not kept: %s", error)
            if left:
                await asyncio.sleep(self.again_seconds)

    async def is_cancelled(self, resumed: Resumed, response_id: str) -> bool:
        """Whether nobody wants the answer that has just come, as far as can be known."""
        with suppress(StoreDown):
            return resumed.is_background and await self.mark_of(resumed.tenant, response_id) is not None
        return False

    async def input_items(self, tenant: str, turn: Turn) -> list[Fields]:
        """All input items of a response, including those of earlier turns, as clients expect them. Raises as
        `resume`."""
        turns = await self._turns(tenant, turn.previous)
        whole = joined([part for one in turns for part in (one.items, output_of(one.response))] + [turn.items])
        return [shown(item) for item in placed_items(whole)]

    async def _turns(self, tenant: str, response_id: object) -> Sequence[Turn]:
        """The turns up to the response of that id, oldest first; none if it is not kept here."""
        found: list[Turn] = []
        size = 0
        while isinstance(response_id, str):
            turn = await self.find(tenant, response_id)
            if turn is None:
                if found:
                    raise _beginning_is_gone()
                return ()
            if turn.is_open:
                raise InvalidRequest(
                    f"The response {response_id!r} is still being written: fetch it until its status is completed, "
                    "then continue it.",
                    param=_PREVIOUS,
                )
            if turn.conversation_id is not None:
                raise InvalidRequest(
                    f"The response {response_id!r} belongs to a conversation: continue that one, with `conversation: "
                    f"{turn.conversation_id}`.",
                    param=_PREVIOUS,
                )
            found.append(turn)
            size += len(turn.items) + len(turn.response)
            if size > self._most_bytes:
                raise _too_long(self._most_bytes)
            response_id = turn.previous
        return found[::-1]

    async def _with_references(self, tenant: str, items: bytes) -> bytes:
        """The items with references replaced by items of kept responses. A short reference may stand for a long item
        and be repeated often, so the sum is checked before anything is assembled."""
        found: list[msgspec.Raw] = []
        size = 0
        outputs: dict[str, dict[object, msgspec.Raw]] = {}
        for item in VALUES.decode(items):
            fields = decode_object(bytes(item)) or {}
            named = fields.get("id") if fields.get("type") == _REFERENCE else None
            response_id = _response_of(named) if isinstance(named, str) else None
            if response_id is None:
                found.append(item)
                continue
            if response_id not in outputs:
                outputs[response_id] = await self._output_of(tenant, response_id)
            found.append(outputs[response_id].get(named, item))
            size += len(memoryview(found[-1]))
            if size > self._most_bytes:
                raise _too_long(self._most_bytes)
        return msgspec.json.encode(found)

    async def _output_of(self, tenant: str, response_id: str) -> dict[object, msgspec.Raw]:
        turn = await self.find(tenant, response_id)
        given = VALUES.decode(output_of(turn.response)) if turn is not None else []
        return {(decode_object(bytes(item)) or {}).get("id"): item for item in given}

    def _replaced(self, body: bytes, items: bytes, left_out: Sequence[str]) -> bytes:
        if len(body) + len(items) > self._most_bytes:
            raise _too_long(self._most_bytes)
        edits: Mapping[str, bytes | None] = {"input": items, **dict.fromkeys(left_out)}
        try:
            return splice(body, edits)
        except NotAnObject as error:
            raise InvalidRequest(f"The body is not valid: {error}.", code="invalid_json") from error


def _response_of(item_id: str) -> str | None:
    """The id of our response that an item belongs to (see `ResponseHead` and `Item`); None for items not ours."""
    _, _, behind = item_id.partition("_")
    response_id, _, place = behind.rpartition("_")
    return response_id if response_id.startswith("resp_") and place.isdigit() else None


def _beginning_is_gone() -> InvalidRequest:
    return InvalidRequest(
        "The beginning of the conversation that this request continues is no longer kept: send the whole conversation "
        "in `input`.",
        param=_PREVIOUS,
        code="previous_response_not_found",
    )


def too_large_to_wait(most_bytes: int) -> BodyTooLarge:
    """The error for a request in the background whose answer could not be kept."""
    return BodyTooLarge(
        f"background: a request of more than {most_bytes:,} bytes, with what it refers to, cannot be kept. Leave it "
        "out, and stream the answer.",
        code="body_too_large",
    )


def _too_long(most_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"With its earlier turns this request is larger than {most_bytes:,} bytes: begin a new conversation, or raise "
        "server.max_body_megabytes in breakeven.yaml.",
        code="body_too_large",
    )
