"""Translates OpenAI chat answers and chunks to Anthropic's messages and events. Pure."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sized
from typing import Final, Literal

import msgspec

from backends.endpoints.chat_text import arguments_in, end_of
from backends.endpoints.tool_call_deltas import ToolCallNumbers
from backends.formats.answer_parts import said_in
from backends.formats.json_objects import Fields, decode_object, first_of, objects_of, part_of, text_of
from backends.formats.past_thinking import UNSIGNED, details_of, with_details
from backends.http.errors import is_too_long
from backends.protocol import Chunk
from backends.usage import Usage

STOP_REASONS: Final[Mapping[str, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
NOT_STOPPED: Final[Fields] = {"stop_reason": None, "stop_sequence": None}
_BLOCK_START: Final = b"event: content_block_start\n"
_BLOCK_STOP: Final = b"event: content_block_stop\n"
_TOO_LONG: Final = ("prompt is too long", "exceed context limit")
"""Anthropic's words. Coding agents shorten the conversation if they find them, whatever the status and type."""
_NO_ROOM: Final = re.compile(
    r"request has \d+ input tokens \((?P<asked>\d{1,9}) > (?P<window>\d{1,9}) - (?P<prompt>\d{1,9})\)"
)
"""How vLLM says that there is no room for the answer beside the prompt."""
ERROR_TYPES: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def messages_error(status: int, message: str, *, request_id: str | None = None, details: Fields | None = None) -> bytes:
    """An error body in Anthropic's format. Its type follows from the HTTP status."""
    kind = ERROR_TYPES.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")
    said: Fields = {"type": kind, "message": message}
    if details:
        said["details"] = details
    error: Fields = {"type": "error", "error": said}
    return msgspec.json.encode(error | ({"request_id": request_id} if request_id else {}))


def messages_error_from(body: bytes, status: int, otherwise: str) -> bytes:
    """An OpenAI error body in Anthropic's format. `otherwise` is the message if it has none."""
    message = text_of(part_of(decode_object(body) or {}, "error"), "message") or otherwise
    if found := _NO_ROOM.search(message):
        message = too_long(int(found["prompt"]), int(found["asked"]), int(found["window"]))
    elif is_too_long(body) and not any(words in message.lower() for words in _TOO_LONG):
        message = f"{_TOO_LONG[0]}: {message}"
    return messages_error(status, message)


def in_messages_shape(body: bytes) -> bytes:
    """The error body of a server that speaks Anthropic's format, as it came unless it is in OpenAI's shape (vLLM's
    checks of fields) or says in other words than Anthropic's that a prompt is too long."""
    document = decode_object(body) or {}
    message = text_of(part_of(document, "error"), "message")
    if message is None:
        return body
    is_known = not is_too_long(body) or any(words in message.lower() for words in _TOO_LONG)
    return body if document.get("type") == "error" and is_known else messages_error_from(body, 400, message)


def too_long(prompt: int, asked: int, window: int) -> str:
    """In Anthropic's words, with tokens as they write them: agents read the numbers, then ask for a shorter answer or
    shorten the conversation. LangChain does only the latter, at the first words alone."""
    if prompt >= window:
        return f"{_TOO_LONG[0]}: {prompt} tokens > {window} maximum"
    return (
        f"input length and `max_tokens` {_TOO_LONG[1]}: {prompt} + {asked} > {window}, "
        f"decrease input length or `max_tokens` and try again: the {_TOO_LONG[0]} for an answer of that length"
    )


def error_event(status: int, message: str) -> bytes:
    """The error as the last event of a stream."""
    return b"event: error\ndata: " + messages_error(status, message) + b"\n\n"


def message_from_answer(
    body: bytes,
    usage: Usage | None,
    *,
    message_id: str,
    model: str,
    stop_sequences: Collection[object] = (),
    keeps_reasoning: Callable[[], bool] = lambda: True,
    name_of: Callable[[str], str] = str,
) -> bytes:
    """A whole OpenAI chat answer as a message. `usage` is the metered one; without it the counts are 0.
    `keeps_reasoning`: whether the caller can handle thinking blocks without text, whose signature carries encrypted
    reasoning to send back. Called only if there is any. `name_of`: the caller's own name of a function."""
    document = decode_object(body) or {}
    choice = first_of(document.get("choices"))
    message = part_of(choice, "message")
    content: list[Fields] = []
    reasoning, text = said_in(message)
    if text := text or text_of(message, "refusal") or "":
        content.append({"type": "text", "text": text})
    for number, call in enumerate(objects_of(message.get("tool_calls"))):
        function, call_id = part_of(call, "function"), text_of(call, "id") or _call_id(message_id, number)
        tool_input = decode_object((arguments_in(function) or "").encode()) or {}
        name = name_of(text_of(function, "name") or "")
        content.append({"type": "tool_use", "id": call_id, "name": name, "input": tool_input})
    details = details_of(message)
    details = details if details and keeps_reasoning() else []
    thoughts: list[tuple[int, Fields]] = [
        (place, {"type": "thinking", "thinking": "", "signature": signature})
        for place, signature in details or ([(0, UNSIGNED)] if reasoning else [])
    ]
    for _, first in thoughts[:1]:
        first["thinking"] = reasoning
    content = with_details(content, thoughts)
    stop = _stop(
        _with_calls(choice.get("finish_reason"), objects_of(message.get("tool_calls"))),
        _stop_sequence(choice, stop_sequences),
    )
    return msgspec.json.encode(_message(message_id, model, content, usage_wire(usage), stop))


def usage_wire(usage: Usage | None) -> Fields:
    """Our usage in Anthropic's format, where `input_tokens` excludes cached tokens."""
    counted = usage or Usage()
    written = counted.cache_write_5m_tokens + counted.cache_write_1h_tokens
    return {
        "input_tokens": counted.input_tokens - counted.cached_input_tokens - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": counted.cached_input_tokens,
        "output_tokens": counted.output_tokens,
    }


def last_events(finish_reason: object, usage: Usage, stop_sequence: str | None = None) -> bytes:
    """The last events of a stream whose blocks are all closed."""
    delta = _stop(finish_reason, stop_sequence)
    return _event("message_delta", delta=delta, usage=usage_wire(usage)) + _event("message_stop")


class OpenBlock:
    """Tracks the open content block of a stream of Anthropic's events, so that it can be closed if the stream ends
    early.

    Takes every payload in order. JSON contains no raw newlines, so the search finds only event names.
    """

    def __init__(self) -> None:
        self._start = b""

    def note(self, payload: bytes) -> None:
        started, stopped = payload.rfind(_BLOCK_START), payload.rfind(_BLOCK_STOP)
        if started > stopped:
            self._start = payload[started + len(_BLOCK_START) :].split(b"\n", 1)[0]
        elif stopped >= 0:
            self._start = b""

    def close(self) -> bytes:
        """The event that closes the open block, or nothing."""
        start = decode_object(self._start.removeprefix(b"data: ")) if self._start else None
        self._start = b""
        return b"" if start is None else _event("content_block_stop", index=start.get("index"))


class MessagesEventWriter:
    """Turns the chunks of one stream, passed in order, into events; the last chunk becomes `message_stop`.

    `input_tokens` is an estimate for the first event: the true count is known only at the end, and is in the event
    before the last. `keeps_reasoning`, `name_of`: see `message_from_answer`.
    """

    def __init__(
        self,
        *,
        message_id: str,
        model: str,
        input_tokens: int,
        stop_sequences: Collection[object] = (),
        keeps_reasoning: Callable[[], bool] = lambda: True,
        name_of: Callable[[str], str] = str,
    ) -> None:
        self._message_id = message_id
        self._model = model
        self._input_tokens = input_tokens
        self._is_started = False
        self._open: Literal["text", "thinking", "tool"] | None = None
        self._next_index = 0
        self._signature = UNSIGNED  # of the open thinking block
        self._numbers = ToolCallNumbers()
        self._tools: dict[int, int] = {}  # tool call -> content block index
        self._open_tools: dict[int, None] = {}  # indexes of open content blocks, in order
        self._whole_tools: set[int] = set()  # those of them whose arguments are complete
        self._finish_reason = "stop"
        self._stop_sequences = stop_sequences
        self._stop_sequence: str | None = None
        self._keeps_reasoning = keeps_reasoning
        self._name_of = name_of
        self._usage: Usage | None = None

    def write(self, chunk: Chunk) -> bytes:
        """The events for one chunk, possibly none (empty)."""
        events: list[bytes] = []
        if not self._is_started:
            self._is_started = True
            events.append(self._start())
        if chunk.usage is not None:
            self._usage = chunk.usage
        if chunk.finish_reason is not None:
            self._finish_reason = chunk.finish_reason
        if chunk.is_done:
            return b"".join([*events, *self._end()])
        document = decode_object(chunk.payload[6:]) if chunk.payload else None
        if document is not None:
            choice = first_of(document.get("choices"))
            self._stop_sequence = _stop_sequence(choice, self._stop_sequences) or self._stop_sequence
            events += self._delta(part_of(choice, "delta"))
        return b"".join(events)

    def _start(self) -> bytes:
        usage = usage_wire(Usage(input_tokens=self._input_tokens))
        return _event("message_start", message=_message(self._message_id, self._model, [], usage, NOT_STOPPED))

    def _end(self) -> list[bytes]:
        usage = self._usage or Usage(input_tokens=self._input_tokens)
        reason = _with_calls(self._finish_reason, self._tools)
        return [*self._close(is_last=True), last_events(reason, usage, self._stop_sequence)]

    def _delta(self, delta: Mapping[str, object]) -> list[bytes]:
        events: list[bytes] = []
        thinking, text = said_in(delta)
        if thinking:
            events += self._text("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            events.append(self._said({"type": "thinking_delta", "thinking": thinking}))
        if (details := details_of(delta)) and self._keeps_reasoning():
            for _, signature in details:
                events += self._text("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                self._signature = signature
                events += self._close()
        if text := text or text_of(delta, "refusal") or "":
            events += self._text("text", {"type": "text", "text": ""})
            events.append(self._said({"type": "text_delta", "text": text}))
        for call in objects_of(delta.get("tool_calls")):
            events += self._tool(call)
        return events

    def _text(self, kind: Literal["text", "thinking"], block: Fields) -> list[bytes]:
        return [] if self._open == kind else self._begin(kind, block)

    def _tool(self, piece: Fields) -> list[bytes]:
        if (named := self._numbers.named(piece)) is None:
            return []
        number, call = named
        function = part_of(call, "function")
        events: list[bytes] = []
        if number not in self._tools:
            call_id = text_of(call, "id") or _call_id(self._message_id, number)
            name = self._name_of(text_of(function, "name") or "")
            block: Fields = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
            events += self._begin("tool", block)
            self._tools[number] = self._next_index - 1
            self._open_tools[self._next_index - 1] = None
        index, arguments = self._tools[number], arguments_in(function)
        if arguments and index in self._open_tools:
            (self._whole_tools.add if self._numbers.is_whole(number) else self._whole_tools.discard)(index)
            said: Fields = {"type": "input_json_delta", "partial_json": arguments}
            events.append(_event("content_block_delta", index=index, delta=said))
        return events

    def _begin(self, kind: Literal["text", "thinking", "tool"], block: Fields) -> list[bytes]:
        closed = self._close()
        self._open = kind
        self._next_index += 1
        return [*closed, _event("content_block_start", index=self._next_index - 1, content_block=block)]

    def _close(self, *, is_last: bool = False) -> list[bytes]:
        """Closes the open block. A tool call that may still continue stays open until the end."""
        ended = list(self._open_tools) if is_last else sorted(self._whole_tools)
        self._whole_tools.clear()
        for index in ended:
            del self._open_tools[index]
        signed: list[bytes] = []
        if self._open in ("text", "thinking"):
            ended.append(self._next_index - 1)
            if self._open == "thinking":
                signed = [self._said({"type": "signature_delta", "signature": self._signature})]
                self._signature = UNSIGNED
        self._open = None
        return [*signed, *(_event("content_block_stop", index=index) for index in ended)]

    def _said(self, delta: Fields) -> bytes:
        return _event("content_block_delta", index=self._next_index - 1, delta=delta)


def _call_id(message_id: str, number: int) -> str:
    """The id of a call that its provider gave none, which a result must name."""
    return f"toolu_{message_id}_{number}"


def _message(message_id: str, model: str, content: list[Fields], usage: Fields, stop: Fields) -> Fields:
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        **stop,
        "usage": usage,
    }


def _event(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: ".encode() + json.dumps({"type": kind, **fields}).encode() + b"\n\n"


def _stop(finish_reason: object, stop_sequence: str | None) -> Fields:
    """The members that say why an answer ended."""
    if finish_reason == "stop" and stop_sequence is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": stop_sequence}
    reason = STOP_REASONS.get(finish_reason, "end_turn") if isinstance(finish_reason, str) else "end_turn"
    return {"stop_reason": reason, "stop_sequence": None}


def _stop_sequence(choice: Mapping[str, object], asked: Collection[object]) -> str | None:
    """The caller's stop sequence that ended the answer, if the server reports it: OpenAI's format has no member for it;
    vLLM and SGLang have one each."""
    found = (text_of(choice, name) for name in ("stop_reason", "matched_stop"))
    return next((text for text in found if text is not None and text in asked), None)


def _with_calls(finish_reason: object, calls: Sized) -> object:
    """The finish reason, corrected by what the answer has. Anthropic's clients run tools only at `tool_use`, which
    some providers do not say, and stand still at one without a call, which others do."""
    reason = end_of(finish_reason)
    if reason in ("length", "content_filter"):
        return reason
    return "tool_calls" if len(calls) else "stop"
