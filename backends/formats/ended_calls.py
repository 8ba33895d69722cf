"""Answers that call functions and end with `stop`, as Gemini's models do at its endpoint for OpenAI's clients and at
OpenRouter: they end with `tool_calls` here, as clients that run functions expect. Pure.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from backends.formats.json_objects import Fields, decode_object, integer, objects_of, part_of
from backends.formats.openai import OpenAIStreamReader
from backends.formats.openai_events import ChatEvent
from backends.learned import Learned
from backends.protocol import Chunk

_STOP: Final = "stop"
_CALLS: Final = "tool_calls"


def with_calls_told(chunk: Chunk) -> Chunk:
    """A whole answer; the same one if nothing is wrong."""
    if chunk.finish_reason != _STOP or b'"tool_calls"' not in chunk.payload:
        return chunk
    document = decode_object(chunk.payload) or {}
    calling = [one for one in _stopped(document) if part_of(one, "message").get(_CALLS)]
    if not calling:
        return chunk
    return replace(chunk, payload=_corrected(document, calling), finish_reason=_CALLS)


def _stopped(document: Fields) -> list[Fields]:
    return [one for one in objects_of(document.get("choices")) if one.get("finish_reason") == _STOP]


def _corrected(document: Fields, calling: list[Fields]) -> bytes:
    """`calling` are choices of the document."""
    for choice in calling:
        choice["finish_reason"] = _CALLS
    return msgspec.json.encode(document)


class CallsToldReader(OpenAIStreamReader):
    """One stream."""

    __slots__ = ("_calling",)

    def __init__(
        self,
        backend: str,
        *,
        wants_usage_chunk: bool,
        joins_events: bool = False,
        model: str = "",
        ends_told: Learned[str, bool] | None = None,
    ) -> None:
        super().__init__(
            backend,
            wants_usage_chunk=wants_usage_chunk,
            joins_events=joins_events,
            model=model,
            ends_told=ends_told,
        )
        self._calling: set[int] = set()

    def _chunk(self, events: Sequence[ChatEvent], lines: Sequence[bytes]) -> Chunk:
        is_wrong = False
        for event in events:
            for choice in event.choices or ():
                if choice.delta is not None and choice.delta.tool_calls:
                    self._calling.add(choice.index)
                if choice.finish_reason == _STOP and choice.index in self._calling:
                    choice.finish_reason = _CALLS
                    is_wrong = True
        return super()._chunk(events, [self._told(line) for line in lines] if is_wrong else lines)

    def _told(self, line: bytes) -> bytes:
        document = decode_object(line) or {}
        calling = [one for one in _stopped(document) if (integer(one, "index") or 0) in self._calling]
        return _corrected(document, calling) if calling else line
