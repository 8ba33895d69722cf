"""Makes one answer of a stream that came though none was asked for, as servers do by default, or always.

Bytes in, bytes out. What is no stream, or one that broke off, stays as it came, and is no answer to its reader.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec

from backends.endpoints.chat_text import arguments_in
from backends.endpoints.tool_call_deltas import EndlessAnswer, ToolCallNumbers
from backends.formats.answer_parts import with_one_text
from backends.formats.json_objects import Fields, decode_object, integer, objects_of, part_of, text_of
from backends.http.sse import BOM, SseParser

_STARTS: Final = (b"data:", b"event:", b"id:", b":")
"""No JSON begins so."""
_NONE_YET: Final = "null"
_STOP: Final = "stop"
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


def as_one_chat(body: bytes) -> bytes:
    """The chat whose chunks these are; the event alone if one has an error."""
    answer: Fields = {}
    choices: dict[int, _Choice] = {}
    try:
        for data in _events(body):
            event = decode_object(with_one_text(data))
            is_of_chat = event is not None and (event.get("choices") is not None or event.get("usage") is not None)
            if event is None or event.get("error") or (event.get("error") is not None and not is_of_chat):
                return data
            if not is_of_chat:  # a server's own
                continue
            answer |= {name: value for name, value in event.items() if value is not None}
            for choice in objects_of(event.get("choices")):
                choices.setdefault(integer(choice, "index") or 0, _Choice()).add(choice)
    except EndlessAnswer:
        return body
    if not choices or not all(choice.is_whole for choice in choices.values()):
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
    lists: dict[str, list[object]] = field(default_factory=dict[str, list[object]])
    calls: dict[int, _Call] = field(default_factory=dict[int, _Call])
    numbers: ToolCallNumbers = field(default_factory=ToolCallNumbers)
    logprobs: list[Fields] = field(default_factory=list[Fields])
    finish_reason: str | None = None
    has_objects: bool = False
    """Of a kind whose pieces nobody here can join, as audio."""

    @property
    def is_whole(self) -> bool:
        return self.finish_reason is not None and not self.has_objects

    def add(self, choice: Fields) -> None:
        delta = part_of(choice, "delta")
        for name, value in delta.items():
            if isinstance(value, str) and name != "role":
                self.texts.setdefault(name, []).append(value)
            elif isinstance(value, list) and name != "tool_calls":
                self.lists.setdefault(name, []).extend(cast(list[object], value))
            elif isinstance(value, dict) and value:
                self.has_objects = True
        for piece in objects_of(delta.get("tool_calls")):
            function = part_of(piece, "function")
            call = self.calls.setdefault(self.numbers.number(piece), _Call())
            call.call_id = call.call_id or text_of(piece, "id")
            call.name = call.name or text_of(function, "name")
            call.arguments.append(arguments_in(function) or "")
        self.logprobs += objects_of(part_of(choice, "logprobs").get("content"))
        end = text_of(choice, "finish_reason")
        if end and end != _NONE_YET and (end != _STOP or self.finish_reason is None):  # as of a stream asked for
            self.finish_reason = end

    def told(self) -> Fields:
        message: Fields = {"role": "assistant", "content": None}
        message |= self.lists | {name: "".join(pieces) for name, pieces in self.texts.items()}
        if self.calls:
            message["tool_calls"] = [call.told(number) for number, call in self.calls.items()]
        logprobs = {"content": self.logprobs} if self.logprobs else None
        return {"message": message, "logprobs": logprobs, "finish_reason": self.finish_reason}
