"""Serves `/v1/responses/compact`: a request for a compaction, which passes through the pipeline like any other, and its
answer in the form that OpenAI's clients expect there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from backends.endpoints.responses_compaction import COMPACTION, TRIGGER, is_kept_message
from backends.formats.json_objects import NOT_JSON, Fields, decode_object, objects_of, text_of
from backends.formats.json_splice import NotAnObject, splice
from backends.protocol import Chunk
from gateway.errors import InvalidRequest, UpstreamFailed
from gateway.kept_answers.conversation_items import items_of, joined, parse_items, shown
from gateway.openai_errors import body_of
from gateway.pipeline import Pipeline
from gateway.request.callers import PassingCaller
from gateway.request.many_values import require_bearable
from gateway.request.run import Caller, Incoming

_NOT_PASSED: Final[dict[str, bytes | None]] = dict.fromkeys(
    ("stream", "background", "tool_choice", "text", "include", "context_management")
)
_TRIGGER: Final = msgspec.json.encode([{"type": TRIGGER}])
_BAD_GATEWAY: Final = 502
_FAILED: Final = (
    "The model did not write a whole summary of this conversation, so nothing was compacted; what it wrote is booked. "
    "Use another model, or continue with the conversation as it is."
)


class Compactions:
    """Implements gateway.api.token_path.Answers."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def answer(self, incoming: Incoming, caller: Caller) -> None:
        """Raises RequestError."""
        key = self._pipeline.identify(incoming)
        whole = await self._pipeline.read_whole(incoming, key)
        with self._pipeline.room_for(whole, incoming):
            items = _items_in(whole.body)
            asked = msgspec.structs.replace(whole, body=_asking(whole.body, items))
            given = [(item, decode_object(item.given) or {}) for item in parse_items(items, (), param="input")]
            kept = [shown(item) for item, fields in given if is_kept_message(fields)]
            await self._pipeline.answer(asked, CompactedCaller(caller, kept), key)


class _Asked(msgspec.Struct):
    input: msgspec.Raw = msgspec.Raw(b"[]")
    previous_response_id: object = None


_ASKED: Final = msgspec.json.Decoder(_Asked)


def _items_in(body: bytes) -> bytes:
    """A JSON array. Raises InvalidRequest."""
    require_bearable(body)
    try:
        asked = _ASKED.decode(body)
    except NOT_JSON as error:
        raise InvalidRequest(f"The body is not valid: {error}.", code="invalid_json") from error
    items = items_of(bytes(asked.input))
    if items is None:
        raise InvalidRequest("input: must be a text or a list of items.", param="input")
    if items == b"[]" and asked.previous_response_id is None:
        raise InvalidRequest("input: needs at least one item, or previous_response_id.", param="input")
    return items


def _asking(body: bytes, items: bytes) -> bytes:
    try:
        return splice(body, {**_NOT_PASSED, "store": b"false", "input": joined([items, _TRIGGER])})
    except NotAnObject as error:
        raise InvalidRequest(f"The body is not valid: {error}.", code="invalid_json") from error


@dataclass(slots=True)
class CompactedCaller(PassingCaller):
    """A Caller that gets the response as a `response.compaction`, after the messages that are `kept`."""

    kept: Sequence[Fields]
    headers: Mapping[str, str] = field(default_factory=dict[str, str], init=False)
    status: int = field(default=0, init=False)

    async def start(self, *, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        self.status, self.content_type, self.headers = status, content_type, headers

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        """Only the whole answer is sent."""
        if chunk is not None and self.status == 200:
            compacted = self._compacted(payload)
            if compacted is None:
                failed = UpstreamFailed(_FAILED, status=_BAD_GATEWAY)
                self.status, chunk, compacted = _BAD_GATEWAY, None, body_of(failed)
                self.headers = {**self.headers, "x-should-retry": "false"}  # each try is paid for
            payload = compacted
        await self.caller.start(status=self.status, content_type=self.content_type, headers=self.headers)
        await self.caller.send(payload, chunk=chunk, is_last=is_last)

    def _compacted(self, payload: bytes) -> bytes | None:
        """None if the response has no whole compaction."""
        response = decode_object(payload) or {}
        found = [item for item in objects_of(response.get("output")) if item.get("type") == COMPACTION]
        if not found or text_of(response, "status") != "completed":
            return None
        told = {name: response.get(name) for name in ("id", "created_at", "usage")}
        return msgspec.json.encode(told | {"object": "response.compaction", "output": [*self.kept, found[-1]]})
