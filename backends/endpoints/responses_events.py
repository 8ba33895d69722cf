"""Translates OpenAI chat answers and chunks to items and events of the Responses API. Pure."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from backends.endpoints.chat_text import arguments_in, end_of
from backends.endpoints.responses_compaction import compaction_item
from backends.endpoints.responses_items import Item, ItemKind, Part, PartKind, ResponseHead, logprobs_of, status_of
from backends.endpoints.responses_tools import Tool, Tools, parse_tools
from backends.endpoints.tool_call_deltas import EndlessAnswer, ToolCallNumbers
from backends.formats.answer_parts import said_in
from backends.formats.json_objects import Fields, decode_object, first_of, objects_of, part_of, text_of
from backends.http.stream_reader import MOST_CALLS
from backends.protocol import Chunk
from backends.usage import Usage

_NO_ARGUMENTS: Final = "{}"
"""For calls without arguments: some providers send an empty text, which clients cannot parse."""
_NAMES: Final[Mapping[PartKind, str]] = {
    "output_text": "response.output_text",
    "refusal": "response.refusal",
    "reasoning_text": "response.reasoning_text",
    "summary_text": "response.reasoning_summary_text",
}
"""Prefixes of the event names for a part's text."""


def response_from_answer(body: bytes, usage: Usage | None, head: ResponseHead, *, now: float) -> bytes:
    """A whole OpenAI chat answer as a response. `usage` is the metered one, `now` Unix seconds."""
    document = decode_object(body) or {}
    choice = first_of(document.get("choices"))
    reason = end_of(choice.get("finish_reason"))
    if head.is_compaction:
        message = part_of(choice, "message")
        output = _compaction(head, said_in(message)[1], reason, has_called=bool(objects_of(message.get("tool_calls"))))
    else:
        items = _items(choice, head, parse_tools(head.asked))
        output = [item.wire() for item in items[:-1]] + [item.wire(status_of(reason)) for item in items[-1:]]
    model = text_of(document, "model") or ""
    return msgspec.json.encode(head.finished(model, output, reason, usage, at=int(now)))


def _compaction(head: ResponseHead, summary: str, reason: str | None, *, has_called: bool) -> list[Fields]:
    """Nothing unless the summary is whole: a conversation would go on without what is missing."""
    is_whole = status_of(reason) == "completed" and not has_called and bool(summary.strip())
    return [compaction_item(head.response_id, summary)] if is_whole else []


def _items(choice: Mapping[str, object], head: ResponseHead, tools: Tools) -> list[Item]:
    message, response_id = part_of(choice, "message"), head.response_id
    items: list[Item] = []
    reasoning, text = said_in(message)
    if reasoning:
        thoughts = [Part(head.thought_kind, [reasoning])]
        items.append(Item("reasoning", response_id, 0, parts=thoughts, is_sealed=head.seals_thoughts))
    parts = [Part("output_text", [text], [logprobs_of(choice)])] if text else []
    parts += [Part("refusal", [refusal])] if (refusal := text_of(message, "refusal")) else []
    if parts:
        items.append(Item("message", response_id, len(items), parts=parts))
    for call in objects_of(message.get("tool_calls")):
        function, place = part_of(call, "function"), len(items)
        name, arguments = text_of(function, "name") or "", arguments_in(function) or _NO_ARGUMENTS
        call_id = text_of(call, "id") or f"call_{response_id}_{place}"
        items.append(Item("call", response_id, place, call_id, tools.called(name), [arguments]))
    return items


class ResponsesEventWriter:
    """Turns the chunks of one stream, passed in order, into events; the last chunk ends the response.

    `now` returns Unix seconds.
    """

    def __init__(self, head: ResponseHead, *, now: Callable[[], float], most_parts: int = MOST_CALLS) -> None:
        self._head = head
        self._now = now
        self._most_parts = most_parts
        self._tools = parse_tools(head.asked)
        self._thought_kind: PartKind = head.thought_kind
        self._model = text_of(head.asked, "model") or ""
        self._sequence = 0
        self._is_started = False
        self._done: dict[int, Fields] = {}  # by position in the output
        self._open: Item | None = None
        self._part: Part | None = None  # the open part of the open item
        self._numbers = ToolCallNumbers()
        self._calls: dict[int, Item] = {}  # tool call -> item
        self._open_calls: dict[int, Item] = {}  # by position, in order
        self._whole_calls: set[int] = set()  # those of them whose arguments are complete
        self._begun = self._begun_parts = 0
        self._finish_reason: str | None = None
        self._usage: Usage | None = None
        self._summary: list[str] | None = [] if head.is_compaction else None
        self._has_called = False

    def write(self, chunk: Chunk) -> bytes:
        """The events for one chunk, possibly none (empty)."""
        document = decode_object(chunk.payload[6:]) if chunk.payload and not chunk.is_done else None
        events: list[bytes] = []
        self._model = text_of(document or {}, "model") or self._model  # Azure's first chunk has an empty one
        if not self._is_started:
            self._is_started = True
            started = self._head.document(self._model, [], "in_progress", None)
            events += [self._event("response.created", response=started)]
            events += [self._event("response.in_progress", response=started)]
        self._usage = chunk.usage or self._usage
        self._finish_reason = end_of(chunk.finish_reason) or self._finish_reason
        if document is not None:
            events += self._delta(first_of(document.get("choices")))
        if chunk.is_done:
            events += self._end()
        return b"".join(events)

    def _end(self) -> list[bytes]:
        closed = self._close(is_last=True) if self._summary is None else self._compacted("".join(self._summary))
        output = [self._done[index] for index in sorted(self._done)]
        whole = self._head.finished(self._model, output, self._finish_reason, self._usage, at=int(self._now()))
        return [*closed, self._event(f"response.{whole['status']}", response=whole)]

    def _compacted(self, summary: str) -> list[bytes]:
        made = _compaction(self._head, summary, self._finish_reason, has_called=self._has_called)
        self._done |= enumerate(made)
        kinds = [f"response.output_item.{kind}" for kind in ("added", "done")]
        return [self._event(kind, output_index=0, item=item) for item in made for kind in kinds]

    def _delta(self, choice: Mapping[str, object]) -> list[bytes]:
        delta = part_of(choice, "delta")
        events: list[bytes] = []
        reasoning, text = said_in(delta)
        if self._summary is not None:
            self._summary.append(text)
            self._has_called = self._has_called or bool(objects_of(delta.get("tool_calls")))
            return []
        if reasoning:
            events += self._text("reasoning", self._thought_kind, reasoning)
        if text:
            events += self._text("message", "output_text", text, logprobs_of(choice))
        if refusal := text_of(delta, "refusal"):
            events += self._text("message", "refusal", refusal)
        for call in objects_of(delta.get("tool_calls")):
            events += self._call(call)
        return events

    def _text(self, kind: ItemKind, part_kind: PartKind, text: str, logprobs: bytes = b"") -> list[bytes]:
        events: list[bytes] = []
        if self._open is None or self._open.kind != kind:
            events = self._begin(kind)[0]
        if self._part is None or self._part.kind != part_kind:
            events += self._begin_part(part_kind)
        item, part = self._open, self._part
        assert item is not None, "was begun"
        assert part is not None, "was begun"
        part.pieces.append(text)
        if logprobs:
            part.logprobs.append(logprobs)
        extra: Fields = {"logprobs": msgspec.Raw(b"[%b]" % logprobs)} if part_kind == "output_text" else {}
        return [*events, self._in_part(f"{_NAMES[part_kind]}.delta", item, delta=text, **extra)]

    def _call(self, piece: Fields) -> list[bytes]:
        if (named := self._numbers.named(piece)) is None:
            return []
        number, call = named
        function = part_of(call, "function")
        events: list[bytes] = []
        item = self._calls.get(number)
        if item is None:
            call_id, name = (
                text_of(call, "id") or f"call_{self._head.response_id}_{number}",
                text_of(function, "name") or "",
            )
            events, item = self._begin("call", call_id, self._tools.called(name))
            self._calls[number] = item
        if (arguments := arguments_in(function)) and item.index in self._open_calls:
            (self._whole_calls.add if self._numbers.is_whole(number) else self._whole_calls.discard)(item.index)
            events.append(self._argue(item, arguments))
        return events

    def _argue(self, item: Item, arguments: str) -> bytes:
        item.arguments.append(arguments)
        if item.tool_kind == "custom":  # its text can be extracted only from complete arguments
            return b""
        return self._event("response.function_call_arguments.delta", **_place(item), delta=arguments)

    def _begin(self, kind: ItemKind, call_id: str = "", tool: Tool | None = None) -> tuple[list[bytes], Item]:
        events = self._close()
        place = self._begun
        self._begun += 1
        item = Item(kind, self._head.response_id, place, call_id, tool, is_sealed=self._head.seals_thoughts)
        if kind == "call":
            self._open_calls[place] = item
        else:
            self._open = item
        events.append(self._event("response.output_item.added", output_index=place, item=item.wire("in_progress")))
        return events, item

    def _begin_part(self, kind: PartKind) -> list[bytes]:
        item = self._open
        assert item is not None, "a part belongs to an item"
        self._begun_parts += 1
        if self._begun_parts > self._most_parts:
            raise EndlessAnswer
        events = self._close_part(item)
        self._part = Part(kind)
        item.parts.append(self._part)
        return [*events, self._in_part(f"{_place_of(kind)}.added", item, part=self._part.wire())]

    def _close(self, *, is_last: bool = False) -> list[bytes]:
        """Closes what is open. A call that may still continue stays open until the end."""
        places = list(self._open_calls) if is_last else sorted(self._whole_calls)
        self._whole_calls.clear()
        ended = [self._open_calls.pop(place) for place in places]
        if self._open is not None:
            ended.append(self._open)
            self._open = None
        return [event for item in ended for event in self._end_item(item, is_last=is_last)]

    def _end_item(self, item: Item, *, is_last: bool) -> list[bytes]:
        events = self._end_call(item) if item.kind == "call" else self._close_part(item)
        wire = item.wire(status_of(self._finish_reason) if is_last and item.index == self._begun - 1 else "completed")
        self._done[item.index] = wire
        return [*events, self._event("response.output_item.done", output_index=item.index, item=wire)]

    def _end_call(self, item: Item) -> list[bytes]:
        events = [] if item.arguments else [self._argue(item, _NO_ARGUMENTS)]
        said = item.said()
        if item.tool_kind == "custom":
            events.append(self._event("response.custom_tool_call_input.delta", **_place(item), delta=said["input"]))
            return [*events, self._event("response.custom_tool_call_input.done", **_place(item), **said)]
        name = item.tool.name if item.tool else ""
        return [*events, self._event("response.function_call_arguments.done", **_place(item), name=name, **said)]

    def _close_part(self, item: Item) -> list[bytes]:
        part = self._part
        if part is None:
            return []
        said: Fields = {"refusal" if part.kind == "refusal" else "text": part.text}
        extra: Fields = {"logprobs": part.all_logprobs} if part.kind == "output_text" else {}
        events = [self._in_part(f"{_NAMES[part.kind]}.done", item, **said, **extra)]
        events.append(self._in_part(f"{_place_of(part.kind)}.done", item, part=part.wire()))
        self._part = None
        return events

    def _in_part(self, kind: str, item: Item, **fields: object) -> bytes:
        index = {"summary_index" if item.parts[-1].kind == "summary_text" else "content_index": len(item.parts) - 1}
        return self._event(kind, item_id=item.item_id, output_index=item.index, **index, **fields)

    def _event(self, kind: str, **fields: object) -> bytes:
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"


def _place_of(kind: PartKind) -> str:
    """Prefix of the event names for a part's beginning and end."""
    return "response.reasoning_summary_part" if kind == "summary_text" else "response.content_part"


def _place(item: Item) -> Fields:
    return {"item_id": item.item_id, "output_index": item.index}
