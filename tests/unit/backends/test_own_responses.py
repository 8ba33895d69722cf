"""Responses that an open model's server refuses are asked for as chats, which take more there."""

import json
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, cast

import pytest

from backends.dialects import dialect_of
from backends.errors import UpstreamRejected
from backends.openai_compatible import OPENAI_PATHS, OpenAICompatibleBackend
from backends.protocol import Call
from backends.scripted import Outcome
from backends.translating import TranslatingBackend
from tests import read_stream
from tests.scripted_provider import Raw, ScriptedProvider

Json = dict[str, Any]
JSON = {"content-type": "application/json"}
CUSTOM: Json = {"type": "custom", "name": "apply_patch"}
SEA: Json = {"type": "namespace", "name": "sea", "tools": [{"type": "function", "name": "tide", "parameters": {}}]}
LATE: Json = {"type": "message", "role": "developer", "content": "Be brief."}
ASKED: Json = {
    "instructions": "Help.",
    "input": [{"role": "user", "content": "hi"}, LATE],
    "tools": [CUSTOM, SEA],
    "stream": True,
    "store": False,
}
VLLM = "[{'type': 'literal_error', 'loc': ('body', 'tools', 1, 'CustomTool', 'type'), 'input': 'namespace'}]"
REFUSALS: list[tuple[int, Json]] = [
    (400, {"error": {"message": "System message must be at the beginning."}}),
    (400, {"error": {"message": "Invalid", "param": "tools.8.type", "code": "invalid_string"}}),
    (400, {"error": {"message": "No endpoints found that support the native `namespace` tool type.", "code": 400}}),
    (400, {"error": {"message": "Unsupported Responses tool type: 'custom'"}}),
    (400, {"error": {"message": "Output of tool call should be 'Input text'"}}),
    (400, {"error": {"message": VLLM, "type": "BadRequestError"}}),
    (404, {"detail": "Not Found"}),
    (501, {"error": {"message": "This server does not support this.", "type": "not_supported_error"}}),
]


def ask(fields: Json) -> Call:
    return Call("responses", "m", json.dumps({"model": "auto", **fields}).encode(), True, "r-1")


def backend_of(provider: ScriptedProvider, name: str = "") -> TranslatingBackend:
    dialect = dialect_of(name)
    adapter = OpenAICompatibleBackend("b", provider.base_url, None, paths=OPENAI_PATHS, dialect=dialect)
    return TranslatingBackend(adapter, native=OPENAI_PATHS, dialect=dialect)


def refused(status: int, body: Mapping[str, object]) -> Raw:
    return Raw((json.dumps(body).encode(),), status=status, headers=JSON)


def endpoints(provider: ScriptedProvider) -> list[str]:
    return [request.path.removeprefix("/v1/") for request in provider.received]


@pytest.mark.parametrize(("status", "body"), REFUSALS)
async def test_what_its_responses_refuse_is_asked_as_a_chat(status: int, body: Json) -> None:
    """vllm #42475, lmstudio #1810, codex #32318, llama.cpp #23465, litellm #39852: Codex's every turn."""
    async with ScriptedProvider(refused(status, body), Outcome(), Outcome(), Raw(())) as provider:
        async with aclosing(backend_of(provider)) as backend:
            chunks = await read_stream.collect(backend, ask(ASKED))
            await read_stream.collect(backend, ask(ASKED))
            await (await backend.open(ask(ASKED | {"tools": [CUSTOM]}))).aclose()
        assert endpoints(provider) == ["responses", *["chat/completions"] * 2, "responses"]
        functions = [tool["function"]["name"] for tool in cast(list[Json], provider.received[1].json["tools"])]
    assert functions == ["apply_patch", "tide"]
    assert b"event: response.completed" in chunks[-1].payload


@pytest.mark.parametrize(
    ("name", "body", "fields"),
    [
        ("openai", REFUSALS[3][1], ASKED),
        ("", {"error": {"message": "temperature: too high"}}, ASKED),
        ("", REFUSALS[3][1], ASKED | {"tools": [CUSTOM, {"type": "web_search"}]}),
        ("", REFUSALS[3][1], ASKED | {"previous_response_id": "resp_1"}),
    ],
)
async def test_other_refusals_stay(name: str, body: Json, fields: Json) -> None:
    async with ScriptedProvider(refused(400, body)) as provider:
        async with aclosing(backend_of(provider, name)) as backend:
            with pytest.raises(UpstreamRejected) as caught:
                await backend.open(ask(fields))
        assert endpoints(provider) == ["responses"]
    assert json.loads(caught.value.body)["error"]["message"] == body["error"]["message"]


async def test_the_refusal_of_a_chat_too_is_that_of_the_response() -> None:
    answers = [refused(400, REFUSALS[3][1]), refused(400, {"error": {"message": "no"}})]
    async with ScriptedProvider(*answers) as provider, aclosing(backend_of(provider)) as backend:
        with pytest.raises(UpstreamRejected) as caught:
            await backend.open(ask(ASKED))
    assert json.loads(caught.value.body)["error"]["message"] == REFUSALS[3][1]["error"]["message"]


async def test_a_chat_that_is_refused_later_is_asked_as_a_response_once() -> None:
    too_long = refused(400, {"error": {"message": "too long", "code": "context_length_exceeded"}})
    answers = (refused(400, REFUSALS[3][1]), Outcome(), too_long, refused(400, REFUSALS[3][1]))
    async with ScriptedProvider(*answers) as provider, aclosing(backend_of(provider)) as backend:
        await read_stream.collect(backend, ask(ASKED))
        with pytest.raises(UpstreamRejected):
            await backend.open(ask(ASKED))
        assert endpoints(provider) == ["responses", "chat/completions", "chat/completions", "responses"]


async def test_what_a_chat_cannot_say_is_still_asked_as_a_response() -> None:
    answers = (refused(400, REFUSALS[3][1]), Outcome(), Raw(()))
    async with ScriptedProvider(*answers) as provider, aclosing(backend_of(provider)) as backend:
        await read_stream.collect(backend, ask(ASKED))
        await (await backend.open(ask(ASKED | {"previous_response_id": "resp_1"}))).aclose()
        assert endpoints(provider) == ["responses", "chat/completions", "responses"]


async def test_only_openai_is_asked_for_a_compaction_as_a_response() -> None:
    """Others answer the conversation instead, or refuse the item. What only the server keeps, a chat cannot say."""
    asked = ASKED | {"input": [{"role": "user", "content": "hi"}, {"type": "compaction_trigger"}]}
    async with ScriptedProvider(Outcome(), Raw(()), Raw(()), Raw(())) as provider:
        async with aclosing(backend_of(provider)) as backend, aclosing(backend_of(provider, "openai")) as openai:
            await read_stream.collect(backend, ask(asked))
            await (await backend.open(ask(ASKED))).aclose()
            await (await backend.open(ask(asked | {"previous_response_id": "resp_1"}))).aclose()
            await (await openai.open(ask(asked))).aclose()
        assert endpoints(provider) == ["chat/completions", *["responses"] * 3]
