"""OpenAI's clients get a text where Mistral answers in parts, and anybody else's parts as they came."""

import json
from collections import deque
from typing import Any

import pytest

from backends.formats.answer_parts import with_one_text
from backends.formats.openai import OpenAIStreamReader, read_answer

Json = dict[str, Any]
THINKING: Json = {"type": "thinking", "thinking": [{"type": "text", "text": "The user wants exactly READY."}]}
REFERENCE: Json = {"type": "reference", "reference_ids": []}
"""Before a schema's answer of mistral-large-latest, as the test of a client in Rust quotes it."""
READY: Json = {"type": "text", "text": "READY"}
PICTURE: Json = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
DATABRICKS: Json = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm", "signature": "s"}]}
TOLD: list[tuple[object, Json]] = [
    ([THINKING | {"closed": True}, READY], {"content": "READY", "reasoning_content": THINKING["thinking"][0]["text"]}),
    ([THINKING], {"content": None, "reasoning_content": THINKING["thinking"][0]["text"]}),
    ([REFERENCE, READY, READY], {"content": "READYREADY"}),
    ([REFERENCE], {"content": None}),
]
AS_IT_CAME: list[object] = [
    "READY",
    None,
    [READY, PICTURE],
    [DATABRICKS, READY],
    ["READY", READY],
    [{"type": ["text"]}],
]


@pytest.mark.parametrize(("content", "expected"), TOLD)
def test_a_whole_answer(content: object, expected: Json) -> None:
    """agent-framework #6978, symfony/ai #2422, vercel/ai #17971."""
    said = {"role": "assistant", "tool_calls": None, "content": content}
    answer = {"id": "x", "choices": [{"index": 0, "message": said, "finish_reason": "stop"}], "usage": {"n": 1}}
    chunk = read_answer(json.dumps(answer).encode(), backend="b")
    answer["choices"] = [{"index": 0, "message": said | expected, "finish_reason": "stop"}]
    assert json.loads(chunk.payload) == answer
    assert chunk.has_output == (content != [REFERENCE])


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize(("content", "expected"), TOLD)
def test_a_stream(content: object, expected: Json, *, joins: bool) -> None:
    """hermes-agent #11243: an answer that thinks begins with lists and goes on with texts."""
    events = [
        {"choices": [{"index": 0, "delta": {"content": one}, "finish_reason": None}]} for one in (content, "plain")
    ]
    reader = OpenAIStreamReader("b", wants_usage_chunk=False, joins_events=joins)
    lines = [json.dumps(event).encode() for event in events]
    joined = reader.join(deque(lines))
    chunks = [joined] if joined else [chunk for line in lines for chunk in reader.read(line)]
    assert len(chunks) == (1 if joins else 2)
    told = b"".join(chunk.payload for chunk in chunks).decode().strip().split("\n\n")
    deltas = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in told]
    assert deltas == [expected, {"content": "plain"}]
    assert told[1] == f"data: {lines[1].decode()}"
    assert sum(chunk.output_characters for chunk in chunks) == 5 + sum(len(text or "") for text in expected.values())


@pytest.mark.parametrize("content", AS_IT_CAME)
def test_what_is_no_text_in_parts_stays(content: object) -> None:
    for name in ("message", "delta"):
        answer = json.dumps({"choices": [{name: {"content": content}}], "x": 1.50}).encode()
        assert with_one_text(answer) == answer
    assert with_one_text(b"no JSON") == b"no JSON"
