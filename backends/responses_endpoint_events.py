"""A backend's answer, in OpenAI's chat chunks, as the items and events of the Responses API. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast

import msgspec

from backends.json_objects import Fields, decode_object, part_of, text_of
from backends.protocol import Chunk
from backends.usage import Usage

ECHOED: Final[Fields] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
"""Fields of the request that a response repeats, as they are when they were not given."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What every response of one request repeats. `created_at` is Unix seconds; `asked` the caller's own fields."""

    response_id: str
    created_at: int
    asked: Fields

    def document(self, model: str, output: list[Fields], status: str, usage: Usage | None) -> Fields:
        """A whole response."""
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "model": model,
            "output": output,
            "previous_response_id": None,
            "store": False,
            **{name: self.asked.get(name, absent) for name, absent in ECHOED.items()},
            "usage": None if usage is None else usage_wire(usage),
        }


def usage_wire(usage: Usage) -> Fields:
    """Our usage in the words of the Responses API."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


@dataclass(slots=True)
class _Item:
    """One item of the output under construction."""

    kind: Literal["message", "reasoning", "function_call"]
    item_id: str
    index: int
    call_id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])

    def wire(self, status: Literal["in_progress", "completed"] = "completed") -> Fields:
        text = "".join(self.pieces)
        head: Fields = {"type": self.kind, "id": self.item_id, "status": status}
        if self.kind == "function_call":
            return head | {"call_id": self.call_id, "name": self.name, "arguments": text}
        if self.kind == "reasoning":
            return head | {"summary": [], "content": [self.part()] if text else []}
        return head | {"role": "assistant", "content": [self.part()] if text else []}

    def part(self, *, is_empty: bool = False) -> Fields:
        text = "" if is_empty else "".join(self.pieces)
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def response_from_answer(body: bytes, usage: Usage | None, head: ResponseHead) -> bytes:
    """A whole OpenAI chat answer as a response. `usage` is the metered one."""
    document = decode_object(body) or {}
    choice = _first(document.get("choices"))
    message = part_of(choice, "message")
    items: list[_Item] = []
    if reasoning := _reasoning(message):
        items.append(_Item("reasoning", f"rs_{head.response_id}_0", 0, pieces=[reasoning]))
    if text := _said(message):
        items.append(_Item("message", f"msg_{head.response_id}_{len(items)}", len(items), pieces=[text]))
    for call in _calls(message):
        function, place = part_of(call, "function"), len(items)
        name, arguments = text_of(function, "name") or "", text_of(function, "arguments") or ""
        call_id = text_of(call, "id") or f"call_{place}"
        items.append(_Item("function_call", f"fc_{head.response_id}_{place}", place, call_id, name, [arguments]))
    model = text_of(document, "model") or ""
    output = [item.wire() for item in items]
    return msgspec.json.encode(head.document(model, output, _status(choice.get("finish_reason")), usage))


class ResponsesEventWriter:
    """Turns the chunks of one stream into events. Feed it every chunk in order; the last one ends the response."""

    def __init__(self, head: ResponseHead) -> None:
        self._head = head
        self._model = ""
        self._sequence = 0
        self._is_started = False
        self._done: list[Fields] = []
        self._open: _Item | None = None
        self._calls: dict[int, _Item] = {}  # tool call index -> item
        self._finish_reason: str | None = None
        self._usage: Usage | None = None

    def write(self, chunk: Chunk) -> bytes:
        """The events for one chunk, possibly none (empty)."""
        document = decode_object(chunk.payload[6:]) if chunk.payload and not chunk.is_done else None
        events: list[bytes] = []
        if not self._is_started:
            self._is_started = True
            self._model = text_of(document or {}, "model") or ""
            started = self._head.document(self._model, [], "in_progress", None)
            events += [self._event("response.created", response=started)]
            events += [self._event("response.in_progress", response=started)]
        self._usage = chunk.usage or self._usage
        self._finish_reason = chunk.finish_reason or self._finish_reason
        if document is not None:
            events += self._delta(part_of(_first(document.get("choices")), "delta"))
        if chunk.is_done:
            events += self._end()
        return b"".join(events)

    def _end(self) -> list[bytes]:
        closed = self._close()
        status = _status(self._finish_reason)
        whole = self._head.document(self._model, self._done, status, self._usage)
        return [*closed, self._event(f"response.{status}", response=whole)]

    def _delta(self, delta: Mapping[str, object]) -> list[bytes]:
        events: list[bytes] = []
        if reasoning := _reasoning(delta):
            events += self._text("reasoning", "response.reasoning_text", reasoning)
        if text := _said(delta):
            events += self._text("message", "response.output_text", text)
        for place, call in enumerate(_calls(delta)):
            events += self._call(call, place)
        return events

    def _text(self, kind: Literal["message", "reasoning"], name: str, text: str) -> list[bytes]:
        events: list[bytes] = []
        item = self._open
        if item is None or item.kind != kind:
            prefix = "msg" if kind == "message" else "rs"
            events, item = self._begin(kind, prefix)
            events.append(self._in_item("response.content_part.added", item, part=item.part(is_empty=True)))
        item.pieces.append(text)
        extra: Fields = {"logprobs": []} if kind == "message" else {}
        return [*events, self._in_item(f"{name}.delta", item, delta=text, **extra)]

    def _call(self, call: Fields, place: int) -> list[bytes]:
        index = call.get("index", place)
        index = index if isinstance(index, int) else place
        function = part_of(call, "function")
        events: list[bytes] = []
        item = self._calls.get(index)
        if item is None:
            call_id, name = text_of(call, "id") or f"call_{index}", text_of(function, "name") or ""
            events, item = self._begin("function_call", "fc", call_id, name)
            self._calls[index] = item
        if arguments := text_of(function, "arguments"):
            item.pieces.append(arguments)
            place_of: Fields = {"item_id": item.item_id, "output_index": item.index}
            events.append(self._event("response.function_call_arguments.delta", **place_of, delta=arguments))
        return events

    def _begin(
        self, kind: Literal["message", "reasoning", "function_call"], prefix: str, call_id: str = "", name: str = ""
    ) -> tuple[list[bytes], _Item]:
        events = self._close()
        place = len(self._done)
        item = _Item(kind, f"{prefix}_{self._head.response_id}_{place}", place, call_id, name)
        self._open = item
        events.append(self._event("response.output_item.added", output_index=place, item=item.wire("in_progress")))
        return events, item

    def _close(self) -> list[bytes]:
        item, self._open = self._open, None
        if item is None:
            return []
        text = "".join(item.pieces)
        self._done.append(item.wire())
        if item.kind == "function_call":
            place: Fields = {"item_id": item.item_id, "output_index": item.index, "name": item.name}
            events = [self._event("response.function_call_arguments.done", **place, arguments=text)]
        else:
            name = "response.output_text.done" if item.kind == "message" else "response.reasoning_text.done"
            extra: Fields = {"logprobs": []} if item.kind == "message" else {}
            events = [self._in_item(name, item, text=text, **extra)]
            events.append(self._in_item("response.content_part.done", item, part=item.part()))
        return [*events, self._event("response.output_item.done", output_index=item.index, item=item.wire())]

    def _in_item(self, kind: str, item: _Item, **fields: object) -> bytes:
        return self._event(kind, item_id=item.item_id, output_index=item.index, content_index=0, **fields)

    def _event(self, kind: str, **fields: object) -> bytes:
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"


def _status(finish_reason: object) -> Literal["completed", "incomplete"]:
    return "incomplete" if finish_reason == "length" else "completed"


def _reasoning(message: Mapping[str, object]) -> str | None:
    return text_of(message, "reasoning_content") or text_of(message, "reasoning")


def _said(message: Mapping[str, object]) -> str | None:
    return text_of(message, "content") or text_of(message, "refusal")


def _first(choices: object) -> Fields:
    found = cast(list[object], choices) if isinstance(choices, list) else []
    return cast(Fields, found[0]) if found and isinstance(found[0], dict) else {}


def _calls(message: Mapping[str, object]) -> list[Fields]:
    calls = message.get("tool_calls")
    found = cast(list[object], calls) if isinstance(calls, list) else []
    return [cast(Fields, call) for call in found if isinstance(call, dict)]
