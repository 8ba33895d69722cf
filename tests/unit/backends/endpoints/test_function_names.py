"""Functions whose names no chat takes: plugins' MCP tools in Claude Code have more than 64 characters."""

import json
from contextlib import aclosing
from typing import Any, Final

import pytest

from backends.endpoints.function_names import name_for_chats
from backends.openai_compatible import OpenAICompatibleBackend
from backends.protocol import Call, Operation
from backends.translating import TranslatingBackend
from tests import read_stream
from tests.scripted_provider import Raw, ScriptedProvider

Json = dict[str, Any]
LONG: Final = "mcp__plugin_yt-content-strategist_youtube-analytics__get_video_enhanced_transcript"
FOUND: Final = {"type": "tool_definition", "definition": {"name": LONG, "input_schema": {"type": "object"}}}
CALLED: Final = [{"type": "tool_use", "id": "c", "name": LONG, "input": {}}]
RESULT: Final = [
    {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "tool_reference", "tool_name": LONG}]}
]
MESSAGE: Final[Json] = {
    "max_tokens": 9,
    "tools": [{"name": LONG, "input_schema": {"type": "object"}}, {"name": "f", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "tool", "name": LONG},
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": CALLED},
        {"role": "user", "content": RESULT},
    ],
}
LATE: Final[Json] = MESSAGE | {
    "tools": [],
    "messages": [*MESSAGE["messages"], {"role": "system", "content": [{"type": "tool_addition", "tool": FOUND}]}],
}
FUNCTION: Final = {"type": "function", "name": LONG, "parameters": {"type": "object"}}
RESPONSE: Final[Json] = {
    "tools": [FUNCTION],
    "tool_choice": {"type": "function", "name": LONG},
    "input": [
        {"role": "user", "content": "hi"},
        {"type": "function_call", "call_id": "c", "name": LONG, "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    ],
}


def answer_with(call: Json, *, is_stream: bool) -> Raw:
    choice: Json = {
        "index": 0,
        "finish_reason": "tool_calls",
        "delta" if is_stream else "message": {"tool_calls": [call]},
    }
    body = json.dumps({"choices": [choice]}).encode()
    if is_stream:
        return Raw((b"data: %b\n\ndata: [DONE]\n\n" % body,), headers={"content-type": "text/event-stream"})
    return Raw((body,), headers={"content-type": "application/json"})


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(("operation", "asked"), [("messages", MESSAGE), ("messages", LATE), ("responses", RESPONSE)])
async def test_a_long_name_is_sent_short_and_comes_back_whole(
    operation: Operation, asked: Json, *, is_stream: bool
) -> None:
    sent = name_for_chats(LONG)
    call = {"index": 0, "id": "d", "type": "function", "function": {"name": sent, "arguments": "{}"}}
    async with ScriptedProvider(answer_with(call, is_stream=is_stream)) as provider:
        async with aclosing(TranslatingBackend(OpenAICompatibleBackend("b", provider.base_url, None))) as backend:
            body = json.dumps({"model": "m", "stream": is_stream, **asked}).encode()
            chunks = await read_stream.collect(backend, Call(operation, "m", body, is_stream, "r-1"))
        [request] = provider.received
    assert len(sent) == 64
    assert LONG.encode() not in request.body
    assert request.body.count(sent.encode()) == (4 if operation == "messages" else 3)
    told = b"".join(chunk.payload for chunk in chunks)
    assert sent.encode() not in told
    assert LONG.encode() in told


@pytest.mark.parametrize("name", ["f", "a" * 64, "read_deadbeef"])
def test_a_name_that_chats_take_stays(name: str) -> None:
    assert name_for_chats(name) == name
