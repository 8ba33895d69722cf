"""Translates Anthropic's answers and events to OpenAI's. No IO, no clock. Requests are in anthropic_request.py.

docs/translation.md lists what cannot be translated in either direction; a test checks it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, cast

import msgspec
from msgspec.structs import replace

from backends.errors import BackendError
from backends.formats.chat_chunks import (
    Answer,
    Head,
    done_chunk,
    finish_chunk,
    reasoning_chunk,
    role_chunk,
    text_chunk,
    tool_arguments_chunk,
    tool_start_chunk,
    usage_chunk,
)
from backends.formats.json_objects import Fields, decode_object, integer, part_of, text_of
from backends.formats.openai import error_body
from backends.formats.usage_wire import (
    MalformedUsage,
    amount_charged,
    believable,
    checked,
    split_writes,
    tier_with_surcharges,
    token_count,
    unknown_lifetime,
    usage_in,
)
from backends.http.errors import TOO_LONG, error_from_event, is_too_long, no_answer
from backends.http.stream_reader import MOST_CALLS, StreamReader
from backends.protocol import Chunk
from backends.usage import Usage

REFUSAL: Final = "refusal"
FINISH_REASONS: Final[Mapping[str, str]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    REFUSAL: "content_filter",
}
_EMPTY_AT_FIRST: Final = (None, "text")
INTERRUPTED: Final = "began another answer inside this one"
_BESIDE: Final = "compaction"
"""Iterations of this type are billed in addition to the usage's own totals."""
_PRICED: Final = frozenset({None, "message", _BESIDE})
"""Other iterations are another model's (`advisor_message`, `fallback_message`), billed at its prices, or of a kind that
we do not know."""
_INPUT: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_OF_INPUT: Final = (*_INPUT, "cache_creation")
_READ: Final = (
    *_OF_INPUT,
    "cost",
    "cost_details",
    "gateway_cost",
    "inference_geo",
    "is_byok",
    "iterations",
    "market_cost",
    "output_tokens",
    "output_tokens_details",
    "server_tool_use",
    "service_tier",
    "speed",
)
"""The members of a usage that we read."""
MOST_INPUT_CHARACTERS: Final = 16 * 1024 * 1024
"""Of the arguments that an answer's calls began with, which are held until their blocks end."""
_MOST_ITERATIONS: Final = 1_000
"""A stream repeats all iterations with every update, and each time they are parsed again."""


def parse_messages_usage(wire: object) -> Usage:
    """Anthropic's usage, whose `input_tokens` excludes cached tokens, as ours. Raises MalformedUsage.

    Work that another model did for the answer, or of a kind that we do not know, counts as `other_tool_calls`, whose
    price is not reported.
    """
    if not isinstance(wire, Mapping):
        raise MalformedUsage("usage is not an object")
    usage = cast(Mapping[str, object], wire)
    iterations = usage.get("iterations")
    found = cast(list[object], iterations) if isinstance(iterations, list) else []
    if len(found) > _MOST_ITERATIONS:
        raise MalformedUsage("more iterations than an answer can have")
    parts = [cast(Fields, part) for part in found if isinstance(part, dict)]
    billed = [usage, *(part for part in parts if part.get("type") == _BESIDE)]
    counted = [_tokens(one) for one in billed]
    special = tier_with_surcharges(usage), next(filter(None, map(unknown_lifetime, billed)), None)
    return checked(
        Usage(
            input_tokens=sum(one.input_tokens for one in counted),
            cached_input_tokens=sum(one.cached_input_tokens for one in counted),
            cache_write_5m_tokens=sum(one.cache_write_5m_tokens for one in counted),
            cache_write_1h_tokens=sum(one.cache_write_1h_tokens for one in counted),
            output_tokens=sum(one.output_tokens for one in counted),
            reasoning_tokens=sum(one.reasoning_tokens for one in counted),
            service_tier="+".join(filter(None, special)) or None,
            web_searches=token_count(
                part_of(usage, "server_tool_use").get("web_search_requests"), "web_search_requests"
            ),
            other_tool_calls=sum(text_of(part, "type") not in _PRICED for part in parts),
            charged_pico_usd=amount_charged(usage),
        )
    )


def _tokens(usage: Mapping[str, object]) -> Usage:
    if usage.get("input_tokens") is None or usage.get("output_tokens") is None:
        raise MalformedUsage("input_tokens or output_tokens is missing")
    read = token_count(usage.get("cache_read_input_tokens"), "cache_read_input_tokens")
    written = token_count(usage.get("cache_creation_input_tokens"), "cache_creation_input_tokens")
    split = part_of(usage, "cache_creation")
    minutes, hour = split_writes(
        written,
        *(token_count(split.get(name), name) for name in ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")),
    )
    return Usage(
        input_tokens=token_count(usage["input_tokens"], "input_tokens") + read + written,
        cached_input_tokens=read,
        cache_write_5m_tokens=minutes,
        cache_write_1h_tokens=hour,
        output_tokens=token_count(usage["output_tokens"], "output_tokens"),
        reasoning_tokens=token_count(part_of(usage, "output_tokens_details").get("thinking_tokens"), "thinking_tokens"),
    )


def note_usage(so_far: Fields, wire: object) -> None:
    """Adds the usage in a stream's event to what was said before. Later figures are cumulative and replace earlier
    ones; the last event omits some, and some servers' says 0 for the input that was counted at the start. Members that
    we do not read are dropped, since they could grow with every event."""
    said = cast(Fields, wire) if isinstance(wire, Mapping) else {}
    kept = _OF_INPUT if any(map(so_far.get, _INPUT)) and not any(map(said.get, _INPUT)) else ()
    so_far |= {name: value for name in _READ if name not in kept and (value := said.get(name)) is not None}


def believable_usage(wire: object) -> tuple[Usage | None, bool]:
    return believable(parse_messages_usage, wire)


def billed(counted: Usage | None, stop_reason: object, *, has_output: bool) -> Usage | None:
    """What is billed of what was counted: nothing, if Claude refused before any output. Its counts are for information
    then, as Anthropic's page on streaming refusals says. What a router says that it charges, it charges."""
    if counted is None or has_output or stop_reason != REFUSAL:
        return counted
    return Usage(charged_pico_usd=counted.charged_pico_usd)


def openai_error(body: bytes) -> bytes:
    """Anthropic's error body in OpenAI's shape."""
    error = part_of(decode_object(body) or {}, "error")
    message = text_of(error, "message") or "the provider refused the request"
    return error_body(
        message,
        kind=text_of(error, "type") or "invalid_request_error",
        code=TOO_LONG if is_too_long(body) else None,
    )


def read_message(body: bytes, *, backend: str, created: int) -> Chunk:
    """A whole message as a chat answer. Raises BackendError if it is none."""
    document = decode_object(body)
    if document is None or document.get("type") == "error" or not isinstance(document.get("content"), list):
        raise not_a_message(document or {}, body, backend=backend)
    answer = Answer(Head(str(document.get("id")), str(document.get("model")), created))
    for item in cast(list[object], document["content"]):
        block = cast(Fields, item) if isinstance(item, dict) else {}
        kind = block.get("type")
        if kind == "text":
            answer.text.append(text_of(block, "text") or "")
        elif kind == "thinking":
            answer.reasoning.append(text_of(block, "thinking") or "")
        elif kind == "tool_use":
            arguments = msgspec.json.encode(block.get("input") or {}).decode()
            answer.add_tool_call(str(block.get("id")), str(block.get("name")), arguments)
    answer.finish_reason = FINISH_REASONS.get(str(document.get("stop_reason")), "stop")
    counted, answer.is_usage_malformed = believable_usage(usage_in(document))
    answer.usage = billed(counted, document.get("stop_reason"), has_output=bool(document["content"]))
    return answer.chunk()


def not_a_message(document: Fields, body: bytes, *, backend: str) -> BackendError:
    """The error for a 200 without a message: the provider's own error, or an unreadable answer."""
    if document.get("type") == "error" or document.get("error") is not None:
        return error_from_event(document.get("error"), backend=backend, is_started=False)
    usage, _ = believable_usage(usage_in(document))
    return no_answer(f"{backend} answered with something that is not a message", body, usage=usage)


def has_begun(event: Fields, chunks: Sequence[Chunk]) -> bool:
    """Whether an answer begins with this event. A block does so empty, as Claude may not show what it thinks, but for
    one of text, with which other servers begin at once."""
    is_block = text_of(part_of(event, "content_block"), "type") not in _EMPTY_AT_FIRST
    return is_block or any(chunk.has_output or chunk.finish_reason for chunk in chunks)


class AnthropicStreamReader(StreamReader):
    """One message stream, event by event, as OpenAI chunks."""

    def __init__(self, backend: str, *, wants_usage_chunk: bool, created: int) -> None:
        super().__init__(backend)
        self._wants_usage = wants_usage_chunk
        self._created = created
        self._head = Head("", "", created)
        self._usage: Fields = {}
        self._has_usage = self._has_finished = self._has_output = False
        self._stop_reason: object = None
        self._tools: dict[int, int] = {}  # content block index -> tool call index
        self._inputs: dict[int, str] = {}  # of tool calls whose arguments have not started
        self._input_characters = 0  # total, including inputs already sent

    def read(self, data: bytes) -> list[Chunk]:
        event = decode_object(data)
        if event is None:
            raise self._broken("sent an event that is not JSON")
        kind = event.get("type")
        if kind == "error":
            raise self._failed(event.get("error"))
        chunks = self._chunks(cast(str, kind), event)
        self.is_started = self.is_started or has_begun(event, chunks)
        return chunks

    def _chunks(self, kind: str, event: Fields) -> list[Chunk]:
        if kind == "content_block_delta":
            return self._delta(event, part_of(event, "delta"))
        if kind == "message_start":
            message = part_of(event, "message")
            head = Head(str(message.get("id")), str(message.get("model")), self._created)
            if self._head.answer_id not in ("", head.answer_id):
                raise self._broken(INTERRUPTED)
            self._head = head
            note_usage(self._usage, message.get("usage"))
            so_far, _ = believable_usage(self._usage or None)
            return [replace(role_chunk(self._head), usage_so_far=so_far)]
        if kind == "content_block_start":
            self._has_output = True
            return self._block_start(event, part_of(event, "content_block"))
        if kind == "message_delta":
            note_usage(self._usage, usage_in(event))
            self._has_usage = self._has_usage or event.get("usage") is not None
            reason = part_of(event, "delta").get("stop_reason")
            self._stop_reason = reason or self._stop_reason
            usage = self._counted()[0] if self._has_usage else None
            return [replace(last, usage=usage) for last in self._finish(str(reason))] if reason else []
        if kind == "content_block_stop" and _block_index(event) in self._inputs:
            return [self._arguments(_block_index(event))]
        if kind == "message_stop" and (self._head.answer_id or self.is_started):
            self.is_done = True
            last = self._finish("tool_use" if self._tools else "end_turn")
            return [*last, *self._final_usage(), done_chunk()]
        return []  # ping, the end of other blocks, and future kinds

    def _block_start(self, event: Fields, block: Mapping[str, object]) -> list[Chunk]:
        if block.get("type") == "tool_use":
            self._inputs[_block_index(event)] = said = msgspec.json.encode(block.get("input") or {}).decode()
            self._input_characters += len(said)
            if len(self._tools) >= MOST_CALLS or self._input_characters > MOST_INPUT_CHARACTERS:
                raise self._broken("sent an endless answer")
            index = self._tools.setdefault(_block_index(event), len(self._tools))
            return [tool_start_chunk(self._head, index, str(block.get("id")), str(block.get("name")))]
        text = block.get("text")
        return [text_chunk(self._head, text)] if isinstance(text, str) and text else []

    def _delta(self, event: Fields, delta: Mapping[str, object]) -> list[Chunk]:
        text, thinking, arguments = delta.get("text"), delta.get("thinking"), delta.get("partial_json")
        if isinstance(text, str) and text:
            return [text_chunk(self._head, text)]
        if isinstance(thinking, str) and thinking:
            return [reasoning_chunk(self._head, thinking)]
        index = _block_index(event)
        if isinstance(arguments, str) and arguments and index in self._tools:
            self._inputs.pop(index, None)
            return [tool_arguments_chunk(self._head, self._tools[index], arguments)]
        return []  # signatures and citations have no place in OpenAI's format

    def _arguments(self, block: int) -> Chunk:
        """For a call that streamed no arguments: those it started with, or {} if it has none."""
        return tool_arguments_chunk(self._head, self._tools[block], self._inputs.pop(block))

    def _finish(self, stop_reason: str) -> list[Chunk]:
        """The finish chunk, exactly one however often the stream says why it stopped."""
        if self._has_finished:
            return []
        self._has_finished = True
        return [finish_chunk(self._head, FINISH_REASONS.get(stop_reason, "stop"))]

    def _counted(self) -> tuple[Usage | None, bool]:
        usage, is_malformed = believable_usage(self._usage)
        return billed(usage, self._stop_reason, has_output=self._has_output), is_malformed

    def _final_usage(self) -> list[Chunk]:
        if not self._has_usage:
            return []
        usage, is_malformed = self._counted()
        return [usage_chunk(self._head, usage, is_shown=self._wants_usage, is_malformed=is_malformed)]


def _block_index(event: Fields) -> int:
    index = integer(event, "index")
    return -1 if index is None else index
