"""Makes one answer of a stream that came though none was asked for, as servers do by default, or always.

Bytes in, bytes out. What is no stream, or one that broke off, stays as it came, and is no answer to its reader.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from backends.endpoints.chat_text import arguments_in
from backends.endpoints.tool_call_deltas import EndlessAnswer, ToolCallNumbers
from backends.formats.json_objects import Fields, decode_object, integer, objects_of, part_of, text_of
from backends.http.sse import BOM, SseParser

_STARTS: Final = (b"data:", b"event:", b"id:", b":")
"""No JSON begins so."""
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


def as_one_chat(body: bytes) -> bytes:
    """The chat whose chunks these are; the event alone if one has an error."""
    answer: Fields = {}
    choices: dict[int, _Choice] = {}
    try:
        for data in _events(body):
            event = decode_object(data)
            if event is None or event.get("error") is not None:
                return data
            answer |= {name: value for name, value in event.items() if value is not None}
            for choice in objects_of(event.get("choices")):
                choices.setdefault(integer(choice, "index") or 0, _Choice()).add(choice)
    except EndlessAnswer:
        return body
    if not choices or not all(choice.finish_reason for choice in choices.values()):
        return body
    told = [{"index": index} | choice.told() for index, choice in sorted(choices.items())]
    return msgspec.json.encode(answer | {"object": "chat.completion", "choices": told})


def as_one_response(body: bytes) -> bytes:
    """The response at the end of these events, with its items where they were told one by one alone; the event alone if
    one has an error."""
    items: list[object] = []
    for data in _events(body):
        event = decode_object(data) or {}
        kind = text_of(event, "type")
        if kind in _ENDS:
            response = part_of(event, "response")
            return msgspec.json.encode({**response, "output": response.get("output") or items})
        if kind == "error" or event.get("error") is not None:
            return data
        if kind == "response.output_item.done":
            items.append(event.get("item"))
    return body


def _events(body: bytes) -> Iterator[bytes]:
    if not body.removeprefix(BOM).lstrip().startswith(_STARTS):
        return
    parser = SseParser(max_event_bytes=sys.maxsize)  # the body is bounded
    for received in (parser.receive(body), parser.finish()):
        yield from (data for data in received if data.strip() != b"[DONE]")


@dataclass(slots=True)
class _Call:
    call_id: str | None = None
    name: str | None = None
    arguments: list[str] = field(default_factory=list[str])

    def told(self, number: int) -> Fields:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.call_id or f"call_{number}", "type": "function", "function": function}


@dataclass(slots=True)
class _Choice:
    """Under construction."""

    texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    calls: dict[int, _Call] = field(default_factory=dict[int, _Call])
    numbers: ToolCallNumbers = field(default_factory=ToolCallNumbers)
    logprobs: list[Fields] = field(default_factory=list[Fields])
    finish_reason: str | None = None

    def add(self, choice: Fields) -> None:
        delta = part_of(choice, "delta")
        for name, value in delta.items():
            if isinstance(value, str) and name != "role":
                self.texts.setdefault(name, []).append(value)
        for piece in objects_of(delta.get("tool_calls")):
            function = part_of(piece, "function")
            call = self.calls.setdefault(self.numbers.number(piece), _Call())
            call.call_id = call.call_id or text_of(piece, "id")
            call.name = call.name or text_of(function, "name")
            call.arguments.append(arguments_in(function) or "")
        self.logprobs += objects_of(part_of(choice, "logprobs").get("content"))
        self.finish_reason = text_of(choice, "finish_reason") or self.finish_reason

    def told(self) -> Fields:
        message: Fields = {"role": "assistant", "content": None}
        message |= {name: "".join(pieces) for name, pieces in self.texts.items()}
        if self.calls:
            message["tool_calls"] = [call.told(number) for number, call in self.calls.items()]
        logprobs = {"content": self.logprobs} if self.logprobs else None
        return {"message": message, "logprobs": logprobs, "finish_reason": self.finish_reason}
