"""Answers with calls end with `tool_calls`, also where their provider says `stop`."""

import json
from contextlib import aclosing
from typing import Any

import pytest

from backends.dialects import dialect_of
from backends.openai_compatible import OpenAICompatibleBackend
from backends.protocol import Call, Chunk
from tests import read_stream
from tests.scripted_provider import Raw, ScriptedProvider

Json = dict[str, Any]
CALL: Json = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLING: Json = {"index": 0, "delta": {"tool_calls": [CALL]}, "finish_reason": None}
ENDED: Json = {"index": 0, "delta": {}, "finish_reason": "stop"}
SAID: Json = {"index": 1, "delta": {"content": '"finish_reason":"stop"'}, "finish_reason": "stop"}


async def ask(provider_name: str, answer: bytes, kind: str) -> list[Chunk]:
    async with ScriptedProvider(Raw((answer,), headers={"content-type": kind})) as provider:
        backend = OpenAICompatibleBackend("b", provider.base_url, None, dialect=dialect_of(provider_name))
        async with aclosing(backend):
            is_stream = kind == "text/event-stream"
            body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "stream": is_stream}).encode()
            return await read_stream.collect(backend, Call("chat.completions", "m", body, is_stream, "r-1"))


@pytest.mark.parametrize(
    ("provider", "reason"), [("gemini", "tool_calls"), ("openrouter", "tool_calls"), ("openai", "stop")]
)
@pytest.mark.parametrize("events", [([CALLING], [ENDED]), ([CALLING | {"finish_reason": "stop"}],)])
async def test_a_stream(provider: str, reason: str, events: tuple[list[Json], ...]) -> None:
    """Clients such as Zed and the AI SDK run functions at `tool_calls` alone (python-genai #2868)."""
    lines = [json.dumps({"choices": choices, "x": 1.50}) for choices in ([SAID], *events)]
    sent = "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]")).encode()
    chunks = await ask(provider, sent, "text/event-stream")
    told = b"".join(chunk.payload for chunk in chunks).decode().split("\n\n")
    ends = [json.loads(line[6:])["choices"][0] for line in told[: len(lines)]]
    assert (ends[0], ends[-1]["finish_reason"]) == (SAID, reason)
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason][-1] == reason
    assert (told == sent.decode().split("\n\n")) == (reason == "stop")


@pytest.mark.parametrize(("provider", "reason"), [("openrouter", "tool_calls"), ("openai", "stop")])
async def test_a_whole_answer(provider: str, reason: str) -> None:
    choices = [
        {"index": 0, "message": {"content": None, "tool_calls": [CALL]}, "finish_reason": "stop"},
        {"index": 1, "message": {"content": "hi"}, "finish_reason": "stop"},
    ]
    [chunk] = await ask(provider, json.dumps({"choices": choices}).encode(), "application/json")
    ends = [one["finish_reason"] for one in json.loads(chunk.payload)["choices"]]
    assert (ends, chunk.finish_reason) == ([reason, "stop"], reason)
    cut = [choices[0] | {"finish_reason": "length"}]
    [chunk] = await ask(provider, json.dumps({"choices": cut}).encode(), "application/json")
    assert (json.loads(chunk.payload)["choices"], chunk.finish_reason) == (cut, "length")
