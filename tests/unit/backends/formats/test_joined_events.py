"""Events of OpenAI's wire format that came together: what they say is what they say one by one."""

import json
from collections import deque
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.errors import BackendError
from backends.formats.openai import OpenAIStreamReader
from backends.protocol import Chunk
from backends.usage import EngineTimings, Usage
from tests.unit.backends.formats.test_openai import OUTPUTS, USAGE, USAGES, delta
from tests.unit.backends.formats.test_openai_ends import choice


class Outcome(NamedTuple):
    """What a caller and the books get from a stream."""

    said: bytes
    characters: int
    has_output: bool
    finish_reason: str | None
    usage: Usage | None
    timings: EngineTimings | None
    ended: bool | type[BackendError]


def outcome(events: list[bytes], *, joins_events: bool, wants_usage: bool) -> Outcome:
    """The outcome of a stream whose events all arrive together."""
    reader = OpenAIStreamReader("b", wants_usage_chunk=wants_usage, joins_events=joins_events)
    waiting, chunks = deque(events), list[Chunk]()
    ended: bool | type[BackendError] = True
    try:
        while waiting and not reader.is_done:
            joined = reader.join(waiting)
            chunks += [joined] if joined is not None else reader.read(waiting.popleft())
        if not reader.is_done:
            chunks += reader.end()
    except BackendError as error:
        ended = type(error)
    return Outcome(
        b"".join(chunk.payload for chunk in chunks),
        sum(chunk.output_characters for chunk in chunks),
        any(chunk.has_output for chunk in chunks),
        next((chunk.finish_reason for chunk in reversed(chunks) if chunk.finish_reason), None),
        next((chunk.usage for chunk in reversed(chunks) if chunk.usage), None),
        next((chunk.timings for chunk in reversed(chunks) if chunk.timings), None),
        ended,
    )


EVENTS: list[bytes] = [
    b"[DONE]",
    b"{",
    b"7",
    b'{\n"choices": []}',
    b'{"choices":[],"x":NaN}',
    b'{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}],"usage":null}',
    *(json.dumps(event).encode() for event, _, _ in OUTPUTS),
    *(event if isinstance(event, bytes) else json.dumps(event).encode() for _, event, _, _ in USAGES),
    *(json.dumps(choice(index, finish)).encode() for index in (0, 1) for finish in (None, "stop", "error")),
    json.dumps({"error": {"code": 429}}).encode(),
    json.dumps({"object": "error", "message": "no", "code": 400}).encode(),
    b'{"code": "x",\n"message": "no"}',
    json.dumps({"choices": [], "usage": USAGE, "x_breakeven": {"gpu_seconds": 0.25, "queue_seconds": 0.0}}).encode(),
]


@settings(max_examples=180)
@given(st.lists(st.sampled_from(EVENTS), max_size=6), st.booleans())
def test_events_that_came_together_say_what_they_say_one_by_one(events: list[bytes], wants_usage: bool) -> None:
    one_by_one = outcome(events, joins_events=False, wants_usage=wants_usage)
    assert outcome(events, joins_events=True, wants_usage=wants_usage) == one_by_one


def test_events_that_came_together_are_one_chunk_but_for_the_last() -> None:
    events = deque(json.dumps(event).encode() for event in (delta(content="a"), delta(content="bc"), delta("stop")))
    whole = b"".join(b"data: " + event + b"\n\n" for event in events)
    events.append(b"[DONE]")
    reader = OpenAIStreamReader("b", wants_usage_chunk=False, joins_events=True)
    assert reader.join(events) == Chunk(whole, has_output=True, output_characters=3, finish_reason="stop")
    assert list(events) == [b"[DONE]"]


def test_two_halves_of_a_document_are_not_one() -> None:
    events = deque([b'{"choices":', b"[]}"])
    assert OpenAIStreamReader("b", wants_usage_chunk=False, joins_events=True).join(events) is None
    assert len(events) == 2


def test_an_empty_usage_that_nobody_asked_for_is_removed_from_each() -> None:
    told = b'{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]%b}'
    events = deque([told % b',"usage":null'] * 8)
    chunk = OpenAIStreamReader("b", wants_usage_chunk=False, joins_events=True).join(events)
    assert chunk is not None
    assert (chunk.payload, chunk.output_characters) == (b"data: %b\n\n" % (told % b"") * 8, 8)
