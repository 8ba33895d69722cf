"""Custom tools of a chat, such as Cursor's ApplyPatch, at models that have only functions."""

import json
from contextlib import aclosing
from typing import Any

import pytest
from openai.types.chat import ChatCompletion

from backends.anthropic import AnthropicBackend
from backends.dialects import dialect_of
from backends.endpoints.custom_calls import with_functions
from backends.errors import UpstreamRejected
from backends.openai_compatible import OpenAICompatibleBackend
from backends.protocol import Call
from backends.translating import TranslatingBackend
from tests import read_stream
from tests.scripted_provider import Raw, ScriptedProvider

Json = dict[str, Any]
JSON = {"content-type": "application/json"}
GRAMMAR = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /.+/"}}
PATCH: Json = {"type": "custom", "custom": {"name": "ApplyPatch", "description": "Edits.", "format": GRAMMAR}}
READ: Json = {"type": "function", "function": {"name": "Read", "parameters": {"type": "object", "properties": {}}}}
PAST: Json = {"id": "c", "type": "custom", "custom": {"name": "ApplyPatch", "input": 'say "a"'}}
ASKED: Json = {
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [PAST]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ],
    "tools": [READ, PATCH],
    "tool_choice": {"type": "custom", "custom": {"name": "ApplyPatch"}},
}
REFUSED = Raw((b'{"error":{"message":"tools[1].type: must be function"}}',), status=400, headers=JSON)


def ask(*, is_stream: bool = False, **fields: Any) -> Call:
    body = json.dumps({"model": "auto", **ASKED, "stream": is_stream, **fields}).encode()
    return Call("chat.completions", "m", body, is_stream, "r-1")


def backend_of(provider: ScriptedProvider, name: str = "") -> TranslatingBackend:
    dialect = dialect_of(name)
    return TranslatingBackend(OpenAICompatibleBackend("b", provider.base_url, None, dialect=dialect), dialect=dialect)


def called(name: str, arguments: str, index: int = 0) -> Json:
    return {"index": index, "id": f"d{index}", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_they_become_functions_of_one_text() -> None:
    made = with_functions(ask().body)
    assert made is not None
    chat = json.loads(made.body)
    assert made.names == {"ApplyPatch"}
    read, patch = chat["tools"]
    assert (read, patch["type"], patch["function"]["name"]) == (READ, "function", "ApplyPatch")
    assert patch["function"]["description"].endswith("follow this lark grammar:\nstart: /.+/")
    assert list(patch["function"]["parameters"]["properties"]) == ["input"]
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "ApplyPatch"}}
    [call] = chat["messages"][1]["tool_calls"]
    assert (call["type"], json.loads(call["function"]["arguments"])) == ("function", {"input": 'say "a"'})


@pytest.mark.parametrize(
    ("tools", "named"), [([READ, PATCH], PATCH), ([READ, {**READ, "function": {"name": "f"}}], READ)]
)
def test_the_others_are_left_out_where_some_are_allowed(tools: list[Json], named: Json) -> None:
    allowed: Json = {"mode": "required", "tools": [named]}
    made = with_functions(
        ask(messages=[], tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": allowed}).body
    )
    assert made is not None
    chat = json.loads(made.body)
    [left] = chat["tools"]
    assert (left["function"]["name"], chat["tool_choice"]) == (named[named["type"]]["name"], "required")


@pytest.mark.parametrize(
    "body",
    [b"[]", b'{"messages":[1,{"role":"user","content":"\\"custom\\""}],"tools":[1]}', b'{"tools":null}'],
)
def test_other_chats_are_left_alone(body: bytes) -> None:
    assert with_functions(body) is None


async def test_a_whole_answer_calls_them_as_they_were_offered() -> None:
    calls = [called("Read", "{}"), called("ApplyPatch", '{"input": "*** Begin"}', 1), called("ApplyPatch", "broken", 2)]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    answers = [Raw((json.dumps(answer).encode(),), headers=JSON)] * 3
    async with ScriptedProvider(REFUSED, *answers) as provider:
        async with aclosing(backend_of(provider)) as backend:
            await read_stream.collect(backend, ask())
            [chunk] = await read_stream.collect(backend, ask())
            await read_stream.collect(backend, ask(tools=[PATCH]))
        assert [b'"custom"' in request.body for request in provider.received] == [True, False, False, True]
    made = ChatCompletion.model_validate_json(chunk.payload).choices[0].message.tool_calls or []
    said = [call.custom.input if call.type == "custom" else call.function.name for call in made]
    assert said == ["Read", "*** Begin", "broken"]


async def test_a_server_that_takes_them_and_reads_nothing_of_them_gets_functions_at_once() -> None:
    """Ollama's Go types have a tool's `function` alone: Cursor's model was never told of ApplyPatch."""
    async with ScriptedProvider() as provider:
        async with aclosing(backend_of(provider, "ollama")) as backend:
            await read_stream.collect(backend, ask())
        assert [b'"custom"' in request.body for request in provider.received] == [False]


async def test_a_stream_calls_them_in_one_piece() -> None:
    pieces = [
        {"tool_calls": [called("ApplyPatch", '{"inp')]},
        {"tool_calls": [{"index": 0, "function": {"arguments": 'ut": "***'}}]},
        {"tool_calls": [called("Read", "{", 1)]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "}"}}, {"index": 0, "function": {"arguments": ' B"}'}}]},
        {"content": "so"},
    ]
    choices: list[Json] = [{"index": 0, "delta": piece, "finish_reason": None} for piece in pieces]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    sent = "".join(f"data: {json.dumps({'choices': [choice]})}\n\n" for choice in choices) + "data: [DONE]\n\n"
    async with (
        ScriptedProvider(REFUSED, Raw((sent.encode(),))) as provider,
        aclosing(backend_of(provider)) as backend,
    ):
        chunks = await read_stream.collect(backend, ask(is_stream=True))
    *events, end = b"".join(chunk.payload for chunk in chunks).decode().split("\n\n")[:-1]
    told = [json.loads(event[6:])["choices"][0] for event in events]
    assert [one["delta"] for one in told] == [
        {"tool_calls": [{"index": 0, "id": "d0", "type": "custom", "custom": {"name": "ApplyPatch", "input": ""}}]},
        {},
        {"tool_calls": [called("Read", "{", 1)]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "}"}}]},
        {"content": "so"},
        {"tool_calls": [{"index": 0, "custom": {"input": "*** B"}}]},
    ]
    assert (told[-1]["finish_reason"], end) == ("tool_calls", "data: [DONE]")


async def test_claude_is_offered_functions() -> None:
    patch = {"type": "tool_use", "id": "d", "name": "ApplyPatch", "input": {"input": "*** Begin"}}
    answer = {"id": "x", "model": "m", "content": [patch]}
    async with ScriptedProvider(Raw((json.dumps(answer).encode(),), headers=JSON)) as provider:
        backend = TranslatingBackend(AnthropicBackend("b", provider.base_url, None))
        async with aclosing(backend):
            [chunk] = await read_stream.collect(backend, ask())
        assert len(provider.received) == 1
    [call] = json.loads(chunk.payload)["choices"][0]["message"]["tool_calls"]
    assert call == {"id": "d", "type": "custom", "custom": {"name": "ApplyPatch", "input": "*** Begin"}}


@pytest.mark.parametrize(
    ("name", "fields"), [("openai", {}), ("", {"messages": [{"role": "custom"}], "tools": [READ]})]
)
async def test_openais_refusals_and_those_of_other_chats_stay(name: str, fields: Json) -> None:
    async with ScriptedProvider(REFUSED) as provider:
        async with aclosing(backend_of(provider, name)) as backend:
            with pytest.raises(UpstreamRejected):
                await backend.open(ask(**fields))
        assert len(provider.received) == 1
