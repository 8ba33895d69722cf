"""Turns of conversations that the gateway stores: finds the one a request names, and appends the turn to it when the
answer has completed."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from backends.formats.json_objects import NOT_JSON, decode_object, text_of
from backends.formats.json_splice import ESCAPE, NotAnObject, find_members, splice
from backends.protocol import Chunk
from gateway.errors import InvalidRequest
from gateway.kept_answers.conversation_items import output_of, split_items
from gateway.kept_answers.kept_conversations import PREFIX, Belonging, KeptConversations
from gateway.request.callers import PassingCaller
from gateway.request.many_values import require_bearable

log = logging.getLogger(__name__)
_MEMBER: Final = b"conversation"
_EVENT: Final = b"event: response."
_BEGUN: Final = frozenset({b"created", b"queued", b"in_progress"})
_ENDED: Final = frozenset({b"completed", b"incomplete"})


class _Named(msgspec.Struct):
    conversation: object = None
    previous_response_id: object = None


_NAMED: Final = msgspec.json.Decoder(_Named)


def named_conversation(body: bytes) -> str | None:
    """The id of the request's conversation, if it was created here. Raises InvalidRequest."""
    if _MEMBER not in body and ESCAPE not in body:
        return None
    require_bearable(body)
    try:
        asked = _NAMED.decode(body)
    except NOT_JSON:
        return None  # the next reader reports what is wrong
    named = asked.conversation
    conversation_id = text_of(named, "id") if isinstance(named, dict) else named
    if not isinstance(conversation_id, str) or not conversation_id.startswith(PREFIX):
        return None
    if asked.previous_response_id is not None:
        raise InvalidRequest(
            "previous_response_id: cannot be used together with conversation, which already has the earlier turns.",
            param="previous_response_id",
        )
    return conversation_id


@dataclass(slots=True)
class BelongingCaller(PassingCaller):
    """A Caller whose response names its conversation, or none if the turn could not be appended. `items` are the
    request's own."""

    conversations: KeptConversations
    belonging: Belonging
    items: bytes
    is_cancelled: Callable[[], Awaitable[bool]]
    """Asked before the turn is appended."""

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        if chunk is not None and self.content_type == "application/json":
            status = (text_of(decode_object(payload) or {}, "status") or "").encode()
            payload = await self._whole(payload, has_ended=status in _ENDED)
        elif chunk is not None and _EVENT in payload:
            payload = b"\n\n".join([await self._event(event) for event in payload.split(b"\n\n")])
        await self.caller.send(payload, chunk=chunk, is_last=is_last)

    async def _event(self, event: bytes) -> bytes:
        head, mark, told = event.partition(b"\ndata: ")
        kind = head.removeprefix(_EVENT)
        if kind not in _BEGUN | _ENDED:
            return event
        try:
            member = find_members(told).get("response")
        except NotAnObject:  # with a key twice
            member = None
        if member is None:
            return event
        response = await self._whole(member.of(told), has_ended=kind in _ENDED)
        return head + mark + told[: member.start] + response + told[member.end :]

    async def _whole(self, response: bytes, *, has_ended: bool) -> bytes:
        belongs = True
        if has_ended:
            belongs = await self._appended(response)
        told = {"id": self.belonging.conversation_id} if belongs else None
        try:
            return splice(response, {"conversation": msgspec.json.encode(told)})
        except NotAnObject:  # with a key twice, as its provider wrote it
            return response

    async def _appended(self, response: bytes) -> bool:
        if await self.is_cancelled():
            return False
        try:
            output = split_items(output_of(response))
        except NOT_JSON as error:  # already paid for, so it is sent
            log.warning("a turn is not kept in its conversation: its provider lists no output: %s", error)
            return False
        return await self.conversations.append(self.belonging, [*split_items(self.items), *output])
