"""Translates OpenAI chat answers and chunks to Gemini's answers and events. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from backends.endpoints.chat_text import arguments_in, end_of
from backends.endpoints.content_wrapping import Unwrapper, Wrapping
from backends.endpoints.tool_call_deltas import EndlessAnswer, ToolCallNumbers
from backends.formats.answer_parts import said_in
from backends.formats.json_objects import (
    Fields,
    decode_object,
    integer,
    number,
    objects_of,
    on_one_line,
    part_of,
    text_of,
)
from backends.formats.openai_events import MOST_CHOICES
from backends.formats.past_thinking import details_of
from backends.formats.thought_signatures import seal_details
from backends.http.stream_reader import MOST_CALLS
from backends.protocol import Chunk
from backends.usage import Usage

FINISH_REASONS: Final[Mapping[object, str]] = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}
"""By the chat's finish reason; any other is STOP."""


@dataclass(frozen=True, slots=True)
class ContentHead:
    """What every event of one answer repeats. `shows_thoughts`: the caller requested them; `wrapping`: see
    content_wrapping.py; `names`: the caller's own names of functions that the chat renamed."""

    answer_id: str
    model: str
    shows_thoughts: bool = False
    wrapping: Wrapping = ""
    names: Mapping[str, str] = field(default_factory=dict[str, str])

    def document(self, candidates: list[Fields], usage: Usage | None) -> bytes:
        """Every event of Google's has a usage, and clients read nothing of one without it."""
        said: Fields = {"candidates": candidates, "usageMetadata": usage_metadata(usage)}
        return msgspec.json.encode(said | {"modelVersion": self.model, "responseId": self.answer_id})


@dataclass(slots=True)
class _Call:
    call_id: str | None = None
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    signature: str | None = None

    def note(self, piece: Mapping[str, object]) -> None:
        function = part_of(piece, "function")
        self.call_id = text_of(piece, "id") or self.call_id
        self.name = text_of(function, "name") or self.name
        self.arguments.append(arguments_in(function) or "")
        google = part_of(part_of(piece, "extra_content"), "google")
        self.signature = text_of(google, "thought_signature") or self.signature

    @property
    def is_cut_off(self) -> bool:
        said = "".join(self.arguments)
        return bool(said) and decode_object(said.encode()) is None

    def part(self, call_id: str, names: Mapping[str, str]) -> Fields:
        arguments, name = decode_object("".join(self.arguments).encode()) or {}, names.get(self.name, self.name)
        made: Fields = {"functionCall": {"id": self.call_id or call_id, "name": name, "args": arguments}}
        return made | ({"thoughtSignature": self.signature} if self.signature else {})


@dataclass(slots=True)
class _Candidate:
    """One choice under construction: what is sent only at its end, since Gemini sends function calls whole."""

    text: Unwrapper
    numbers: ToolCallNumbers = field(default_factory=ToolCallNumbers)
    calls: dict[int, _Call] = field(default_factory=dict[int, _Call])
    details: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    finish_reason: str | None = None

    def note(self, choice: Mapping[str, object], said: Mapping[str, object]) -> None:
        """`said` is a message, or a piece of one."""
        self.finish_reason = end_of(choice.get("finish_reason")) or self.finish_reason
        self.details += details_of(said)
        for piece in objects_of(said.get("tool_calls")):
            self.calls.setdefault(self.numbers.number(piece), _Call()).note(piece)

    def said_parts(self, said: Mapping[str, object], *, shows_thoughts: bool) -> list[Fields]:
        """The parts to send for a message or a piece of one."""
        thinking, text = said_in(said)
        parts: list[Fields] = []
        if thinking and shows_thoughts:
            parts.append({"text": thinking, "thought": True})
        if text := self.text.feed(text) or text_of(said, "refusal") or "":
            parts.append({"text": text})
        return parts

    def last_parts(self, head: ContentHead, index: int) -> list[Fields]:
        is_cut = self.finish_reason == "length"
        rest = self.text.end(is_cut=is_cut)
        parts: list[Fields] = [{"text": rest}] if rest else []
        parts += [
            call.part(f"call_{head.answer_id}_{index}_{place}", head.names)
            for place, call in enumerate(self.calls.values())
            if call.name and not (is_cut and call.is_cut_off)  # Google's clients run each call that comes
        ]
        if self.details:
            signed = next((part for part in parts if "functionCall" in part), None)
            if signed is None:
                parts.append(signed := {"text": ""})
            signed["thoughtSignature"] = seal_details(sorted(self.details))
        return parts

    @property
    def finish(self) -> str:
        return FINISH_REASONS.get(self.finish_reason, "STOP")


def content_from_answer(body: bytes, usage: Usage | None, head: ContentHead) -> bytes:
    """A whole OpenAI chat answer in Gemini's format. `usage` is the metered one; without it the counts are 0."""
    candidates: list[Fields] = []
    for index, choice in _choices(decode_object(body) or {}):
        message, candidate = part_of(choice, "message"), _Candidate(Unwrapper(head.wrapping))
        candidate.note(choice, message)
        parts = candidate.said_parts(message, shows_thoughts=head.shows_thoughts)
        parts += candidate.last_parts(head, index)
        made: Fields = {"content": _content(parts), "finishReason": candidate.finish, "index": index}
        candidates.append(made | _logprobs(choice))
    return head.document(candidates, usage)


def usage_metadata(usage: Usage | None) -> Fields:
    """Our usage in Google's format, where `candidatesTokenCount` excludes thoughts."""
    counted = usage or Usage()
    made: Fields = {
        "promptTokenCount": counted.input_tokens,
        "candidatesTokenCount": counted.output_tokens - counted.reasoning_tokens,
        "totalTokenCount": counted.input_tokens + counted.output_tokens,
    }
    if counted.cached_input_tokens:
        made["cachedContentTokenCount"] = counted.cached_input_tokens
    if counted.reasoning_tokens:
        made["thoughtsTokenCount"] = counted.reasoning_tokens
    return made


def last_content_event(finish_reason: object, usage: Usage, head: ContentHead) -> bytes:
    """The last event of a stream that is ended early."""
    finish = FINISH_REASONS.get(finish_reason, "STOP")
    return _event(head.document([{"content": _content([]), "finishReason": finish, "index": 0}], usage))


class ContentEventWriter:
    """Turns the chunks of one stream, passed in order, into events. The last event has the calls, the finish reasons
    and the usage; before it the counts are 0."""

    def __init__(self, head: ContentHead) -> None:
        self._head = head
        self._candidates: dict[int, _Candidate] = {}
        self._usage: Usage | None = None

    def write(self, chunk: Chunk) -> bytes:
        """The event for one chunk; empty if there is nothing to send yet."""
        if chunk.usage is not None:
            self._usage = chunk.usage
        if chunk.is_done:
            return self._end()
        told: list[Fields] = []
        for index, choice in _choices(decode_object(chunk.payload[6:]) or {} if chunk.payload else {}):
            delta = part_of(choice, "delta")
            candidate = self._candidates.setdefault(index, _Candidate(Unwrapper(self._head.wrapping)))
            candidate.note(choice, delta)
            if parts := candidate.said_parts(delta, shows_thoughts=self._head.shows_thoughts):
                told.append({"content": _content(parts), "index": index, **_logprobs(choice)})
        if sum(len(candidate.calls) for candidate in self._candidates.values()) > MOST_CALLS:
            raise EndlessAnswer
        return _event(self._head.document(told, self._usage)) if told else b""

    def _end(self) -> bytes:
        ended = sorted((self._candidates or {0: _Candidate(Unwrapper(""))}).items())
        candidates: list[Fields] = [
            {
                "content": _content(candidate.last_parts(self._head, index)),
                "finishReason": candidate.finish,
                "index": index,
            }
            for index, candidate in ended
        ]
        return _event(self._head.document(candidates, self._usage))


def _choices(document: Fields) -> Iterator[tuple[int, Fields]]:
    for choice in objects_of(document.get("choices")):
        index = integer(choice, "index") or 0
        yield (index if 0 <= index <= MOST_CHOICES else 0), choice


def _content(parts: list[Fields]) -> Fields:
    return {"parts": parts or [{"text": ""}], "role": "model"}


def _logprobs(choice: Mapping[str, object]) -> Fields:
    """The log probabilities of the tokens and, if requested, of their alternatives."""
    tokens = objects_of(part_of(choice, "logprobs").get("content"))
    if not tokens:
        return {}
    chosen = [_candidate_token(one) for one in tokens]
    result: Fields = {"chosenCandidates": chosen}
    if any(one.get("top_logprobs") for one in tokens):
        result["topCandidates"] = [
            {"candidates": [_candidate_token(other) for other in objects_of(one.get("top_logprobs"))]} for one in tokens
        ]
    mean = sum(number(one, "logprob") or 0.0 for one in tokens) / len(tokens)
    return {"avgLogprobs": mean, "logprobsResult": result}


def _candidate_token(token: Mapping[str, object]) -> Fields:
    return {"token": text_of(token, "token") or "", "logProbability": number(token, "logprob") or 0.0}


def _event(document: bytes) -> bytes:
    return b"data: " + on_one_line(document) + b"\n\n"
