"""Translates Responses API answers and events to OpenAI chats. No IO, no clock. Requests are in responses_request.py.

All output items (text, tool calls, reasoning) become one chat message.
"""

from collections.abc import Mapping
from typing import Final, Literal

from backends.formats.chat_chunks import (
    Answer,
    Head,
    custom_input_chunk,
    custom_start_chunk,
    details_chunk,
    done_chunk,
    finish_chunk,
    reasoning_chunk,
    refusal_chunk,
    role_chunk,
    text_chunk,
    tool_arguments_chunk,
    tool_start_chunk,
    usage_chunk,
)
from backends.formats.json_objects import Fields, decode_object, integer, objects_of, part_of, text_of
from backends.formats.past_thinking import carry, detail_of
from backends.formats.responses import ENDS, check_response, failure_of, finish_reason_of, usage_of
from backends.http.errors import no_answer
from backends.http.stream_reader import MOST_CALLS, StreamReader
from backends.protocol import Chunk

_LATEST: Final = 10**12
"""Unix seconds; a later time is treated as missing."""
BETWEEN: Final = "\n\n"
"""Joins the texts of one answer, of which a chat has only one."""
CALLS: Final = ("function_call", "custom_tool_call")
_ARGUMENTS: Final = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")
_THOUGHTS: Final = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")


def read_response_as_chat(body: bytes, *, backend: str) -> Chunk:
    """A whole response as a chat answer. Raises BackendError if it is no response, or a failed one."""
    response = check_response(body, backend=backend)
    usage, is_malformed = usage_of(response)
    if finish_reason_of(response) is None:
        raise no_answer(f"{backend} answered before it was done", body, usage=usage)
    answer = Answer(_head(response))
    for place, item in enumerate(objects_of(response.get("output"))):
        _add(answer, item, place, backend)
    answer.finish_reason = _reason(response, has_calls=bool(answer.tool_calls))
    answer.usage, answer.is_usage_malformed = usage, is_malformed
    return answer.chunk()


def _add(answer: Answer, item: Fields, place: int, backend: str) -> None:
    kind = item.get("type")
    if kind == "reasoning":
        parts = [*objects_of(item.get("summary")), *objects_of(item.get("content"))]
        for text in filter(None, (text_of(part, "text") for part in parts)):
            _append(answer.reasoning, text)
        if encrypted := text_of(item, "encrypted_content"):
            answer.details.append(detail_of(carry(encrypted, backend), place))
    elif kind == "message":
        parts = objects_of(item.get("content"))
        _append(answer.text, "".join(text_of(part, "text") or "" for part in parts))
        _append(answer.refusal, "".join(text_of(part, "refusal") or "" for part in parts))
        answer.logprobs += [token for part in parts for token in objects_of(part.get("logprobs"))]
    elif kind == "function_call":
        answer.add_tool_call(*_named(item), text_of(item, "arguments") or "{}")
    elif kind == "custom_tool_call":
        answer.add_custom_call(*_named(item), text_of(item, "input") or "")


def _append(texts: list[str], text: str) -> None:
    if text:
        texts += [BETWEEN, text] if texts else [text]


def _head(response: Mapping[str, object]) -> Head:
    created = response.get("created_at")
    return Head(
        text_of(response, "id") or "",
        text_of(response, "model") or "",
        int(created) if isinstance(created, int | float) and 0 <= created <= _LATEST else 0,
        text_of(response, "service_tier"),
    )


def _named(item: Mapping[str, object]) -> tuple[str, str]:
    """A call's (id, name)."""
    return text_of(item, "call_id") or text_of(item, "id") or "", text_of(item, "name") or ""


def _reason(response: Mapping[str, object], *, has_calls: bool) -> str:
    """The chat's `finish_reason`: `tool_calls` for an answer with calls, unless it was cut off."""
    reason = finish_reason_of(response)
    return "tool_calls" if has_calls and reason != "length" and reason != "content_filter" else reason or "stop"


class ChatOfResponseReader(StreamReader):
    """One stream, event by event, as OpenAI chunks. It counts as started with the first chunk that the caller sees:
    until then another backend can be tried."""

    def __init__(self, backend: str, *, wants_usage_chunk: bool) -> None:
        super().__init__(backend)
        self._wants_usage = wants_usage_chunk
        self._head = Head("", "", 0)
        self._calls: dict[int | None, int] = {}  # place in the output -> tool call index
        self._silent: set[int | None] = set()  # calls whose arguments have not started
        self._last: dict[Literal["text", "thought"], tuple[int | None, int | None]] = {}  # (item, part) that spoke last

    def read(self, data: bytes) -> list[Chunk]:
        event = decode_object(data)
        kind = text_of(event, "type") if event else None
        if event is None or kind is None:
            raise self._broken("sent an event that is not one of its own")
        response = part_of(event, "response")
        if kind in ("error", "response.failed"):
            error = response.get("error") if response else event.get("error", event)
            raise failure_of(response, error, backend=self._backend, is_started=self.is_started)
        if response:
            self._head = _head(response)
        chunks = self._end(response) if kind in ENDS else self._chunks(kind, event)
        if chunks and not self.is_started:
            self.is_started = True
            return [role_chunk(self._head), *chunks]
        return chunks

    def _end(self, response: Mapping[str, object]) -> list[Chunk]:
        self.is_done = True
        usage, is_malformed = usage_of(response)
        last = [finish_chunk(self._head, _reason(response, has_calls=bool(self._calls)))]
        if usage is not None or is_malformed:
            last.append(usage_chunk(self._head, usage, is_shown=self._wants_usage, is_malformed=is_malformed))
        return [*last, done_chunk()]

    def _chunks(self, kind: str, event: Fields) -> list[Chunk]:
        item, place = part_of(event, "item"), integer(event, "output_index")
        if kind == "response.output_item.added":
            return self._begin_call(item, place) if item.get("type") in CALLS else []
        if kind == "response.output_item.done":
            return self._end_item(item, place)
        delta = text_of(event, "delta")
        if not delta:
            return []  # starts and ends of parts, keep-alives, and future kinds
        if kind == "response.output_text.delta":
            said = self._apart("text", place, None) + delta
            return [text_chunk(self._head, said, objects_of(event.get("logprobs")))]
        if kind == "response.refusal.delta":
            return [refusal_chunk(self._head, delta)]
        if kind in _THOUGHTS:
            part = integer(event, "summary_index")
            return [reasoning_chunk(self._head, self._apart("thought", place, part) + delta)]
        return [self._arguments(kind, delta, place)] if kind in _ARGUMENTS and place in self._calls else []

    def _apart(self, what: Literal["text", "thought"], place: int | None, part: int | None) -> str:
        """The separator to put before a delta that starts a new text; else empty."""
        before = self._last.get(what)
        self._last[what] = (place, part)
        return BETWEEN if before is not None and before != (place, part) else ""

    def _begin_call(self, item: Mapping[str, object], place: int | None) -> list[Chunk]:
        if len(self._calls) >= MOST_CALLS:
            raise self._broken("sent an endless answer")
        index = self._calls.setdefault(place, len(self._calls))
        self._silent.add(place)
        start = tool_start_chunk if item.get("type") == "function_call" else custom_start_chunk
        return [start(self._head, index, *_named(item))]

    def _arguments(self, kind: str, delta: str, place: int | None) -> Chunk:
        self._silent.discard(place)
        say = tool_arguments_chunk if kind == _ARGUMENTS[0] else custom_input_chunk
        return say(self._head, self._calls[place], delta)

    def _end_item(self, item: Mapping[str, object], place: int | None) -> list[Chunk]:
        kind = item.get("type")
        if kind == "reasoning" and (encrypted := text_of(item, "encrypted_content")):
            return [details_chunk(self._head, detail_of(carry(encrypted, self._backend), place or 0))]
        if kind not in CALLS:
            return []
        begun = [] if place in self._calls else self._begin_call(item, place)
        if place not in self._silent:
            return begun
        said = text_of(item, "arguments") or "{}" if kind == "function_call" else text_of(item, "input") or ""
        return [*begun, self._arguments(_ARGUMENTS[CALLS.index(kind)], said, place)]
