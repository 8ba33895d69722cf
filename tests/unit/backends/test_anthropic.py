"""The Anthropic adapter over a real connection: what is sent, and native calls that pass unchanged."""

import json
from contextlib import aclosing
from typing import Any

import pytest

from backends.anthropic import AnthropicBackend
from backends.errors import UpstreamRejected, UpstreamUnavailable
from backends.formats.call_ids import for_anthropic
from backends.protocol import Operation
from backends.scripted import Outcome
from backends.usage import Usage
from tests import read_stream
from tests.scripted_provider import Raw, ScriptedProvider
from tests.unit.backends.anthropic_calls import NATIVE, OUTCOME, body_of, collect, make_call


async def test_a_native_call_is_sent_as_it_came_but_for_the_model() -> None:
    async with ScriptedProvider(OUTCOME) as provider:
        [chunk] = await collect(provider, make_call(NATIVE % b"false", "messages"))
        [request] = provider.received
    assert request.body == (NATIVE % b"false").replace(b'"auto"', b'"claude-x"')
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert (headers["x-api-key"], headers["anthropic-version"]) == ("key", "2023-06-01")
    assert request.path == "/v1/messages"
    assert chunk.usage == OUTCOME.usage
    assert json.loads(chunk.payload)["content"] == [{"type": "text", "text": "Hello."}]


@pytest.mark.parametrize(
    ("asked", "model", "given", "told"),
    [
        (b"auto", "claude-haiku-4-5", b'{"effort":"low"}', b""),
        (b"auto", "claude-haiku-4-5", b'{"effort":"low","format":{}}', b'"output_config":{"format":{}},'),
        (b"auto", "claude-opus-4-5", b'{"effort":"xhigh"}', b'"output_config":{"effort":"high"},'),
        (b"auto", "claude-opus-4-5", b'{ "effort":"high"}', b'"output_config":{ "effort":"high"},'),
        (b"auto", "claude-haiku-4-5", b"7", b'"output_config":7,'),
        (b"claude-haiku-4-5", "claude-haiku-4-5", b'{"effort":"low"}', b'"output_config":{"effort":"low"},'),
    ],
)
async def test_an_effort_that_a_model_lacks_is_not_told_unless_the_caller_named_it(
    asked: bytes, model: str, given: bytes, told: bytes
) -> None:
    body = b'{"output_config":%b,"model":"%b"}'
    sent = await body_of(make_call(body % (given, asked), "messages", model))
    assert sent == b'{%b"model":"%b"}' % (told, model.encode())


@pytest.mark.parametrize(
    ("asked", "model", "told"),
    [
        (b"auto", "claude-opus-5-5", b""),
        (b"claude-opus-5-5", "claude-opus-5-5", b',"temperature":0,"top_k":5'),
        (b"auto", "claude-sonnet-4-6", b',"temperature":0,"top_k":5'),
    ],
)
async def test_how_tokens_are_drawn_is_not_told_to_a_newer_model_that_the_caller_did_not_name(
    asked: bytes, model: str, told: bytes
) -> None:
    head, tail = b'{"model":"%b","max_tokens":9', b',"messages":[{"role":"user","content":"hi"}]}'
    body = head % asked + b',"temperature":0,"top_k":5' + tail
    assert await body_of(make_call(body, "messages", model)) == head % model.encode() + told + tail


@pytest.mark.parametrize(
    ("model", "given", "told"),
    [
        ("claude-haiku-4-5", b'"temperature":0.2,"top_p":0.9', b'"temperature":0.2'),
        ("claude-haiku-4-5", b'"temperature":1,"top_p":0.9', b'"top_p":0.9'),
        ("deepseek-v4", b'"temperature":0.2,"top_p":0.9', b'"temperature":0.2,"top_p":0.9'),
    ],
)
async def test_claude_is_told_only_one_of_temperature_and_top_p(model: str, given: bytes, told: bytes) -> None:
    body = b'{"model":"%b",%b,"messages":[]}'
    sent = await body_of(make_call(body % (b"auto", given), "messages", model))
    assert sent == body % (model.encode(), told)


async def test_a_native_call_that_another_model_began_gets_ids_that_anthropic_takes() -> None:
    result = b'{"type":"tool_result","tool_use_id":"functions.f:0","content":"1"}'
    body = b'{"model":"auto","max_tokens":9,"messages":[{"role":"user","content":[%b]}]}' % result
    expected = body.replace(b"functions.f:0", for_anthropic("functions.f:0").encode())
    assert await body_of(make_call(body, "messages")) == expected.replace(b'"auto"', b'"claude-x"')


async def test_a_native_stream_keeps_its_events() -> None:
    async with ScriptedProvider(OUTCOME) as provider:
        chunks = await collect(provider, make_call(NATIVE % b"true", "messages", stream=True))
    kinds = [chunk.payload.split(b"\n")[0].removeprefix(b"event: ").decode() for chunk in chunks]
    assert kinds == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert chunks[-1].is_done
    assert [chunk.usage for chunk in chunks if chunk.usage] == [OUTCOME.usage]


async def test_a_native_rejection_keeps_anthropics_shape_and_a_chats_takes_openais() -> None:
    async with ScriptedProvider(Outcome(fault="rejected")) as provider:
        with pytest.raises(UpstreamRejected) as native:
            await collect(provider, make_call(NATIVE % b"false", "messages"))
        with pytest.raises(UpstreamRejected) as chat:
            await collect(provider, make_call(b'{"messages":[{"role":"user","content":"hi"}]}', "chat.completions"))
    said = {"type": "invalid_request_error", "message": "scripted 400"}
    assert json.loads(native.value.body) == {"type": "error", "error": said}
    assert json.loads(chat.value.body) == {"error": said | {"param": None, "code": None}}


async def test_a_native_rejection_in_openais_shape_is_told_in_anthropics() -> None:
    """llama-server 0.7.0 takes messages and refuses them so; Claude Code shortens a conversation at these words."""
    why = "request (3031 tokens) exceeds the available context size (2048 tokens), try increasing it"
    body = json.dumps({"error": {"code": 400, "message": why, "type": "exceed_context_size_error"}}).encode()
    async with ScriptedProvider(Raw((body,), status=400, headers={"content-type": "application/json"})) as provider:
        with pytest.raises(UpstreamRejected) as native:
            await collect(provider, make_call(NATIVE % b"false", "messages"))
    said = {"type": "invalid_request_error", "message": f"prompt is too long: {why}"}
    assert json.loads(native.value.body) == {"type": "error", "error": said}


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("embeddings", b"{}"),
        ("messages", b"[]"),
        ("messages", NATIVE.replace(b"{", b'{"Max_Tokens":9000,', 1) % b"false"),
        ("chat.completions", b"{"),
    ],
)
async def test_what_cannot_be_sent_is_refused_without_a_call(operation: Operation, body: bytes) -> None:
    async with ScriptedProvider() as provider:
        with pytest.raises(UpstreamRejected):
            await collect(provider, make_call(body, operation))
        assert provider.received == []


async def test_tokens_are_counted_by_the_provider() -> None:
    plain = {"content-type": "application/json"}
    answers = [
        Raw((body,), headers=plain) for body in (b'{"input_tokens":14}', b'{"input_tokens":-1}', b"{}", b"<html>")
    ]
    async with ScriptedProvider(*answers) as provider:
        backend = AnthropicBackend("b", provider.base_url, "key")
        call = make_call(NATIVE % b"false", "messages.count_tokens")
        [chunk] = [chunk async for chunk in await backend.open(call)]
        assert (chunk.payload, chunk.usage) == (b'{"input_tokens":14}', Usage(input_tokens=14))
        for _ in answers[1:]:
            with pytest.raises(UpstreamUnavailable):
                await backend.open(call)
        await backend.aclose()
        assert {request.path for request in provider.received} == {"/v1/messages/count_tokens"}


VLLM_TOO_LONG = (
    "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens, "
    "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. "
    "(parameter=input_tokens, value=2049)"
)


VLLM_CHECK = "1 validation error:\n  {'type': 'value_error', 'loc': 'body.max_tokens', 'msg': 'Value error'}"


ANTHROPICS: dict[str, Any] = {
    "type": "error",
    "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"},
    "request_id": "req_1",
}


@pytest.mark.parametrize(
    ("said", "told"),
    [  # vLLM 0.32.0, and Anthropic
        (
            {"type": "error", "error": {"type": "BadRequestError", "message": VLLM_TOO_LONG}},
            {"type": "invalid_request_error", "message": f"prompt is too long: {VLLM_TOO_LONG}"},
        ),
        (
            {"error": {"message": VLLM_CHECK, "type": "Bad Request", "param": "body.max_tokens", "code": 400}},
            {"type": "invalid_request_error", "message": VLLM_CHECK},
        ),
        (
            {"type": "error", "error": {"type": "BadRequestError", "message": "Grammar error: Invalid type: x"}},
            {"type": "BadRequestError", "message": "Grammar error: Invalid type: x"},
        ),
        (ANTHROPICS, ANTHROPICS["error"]),
    ],
)
async def test_a_refusal_in_this_format_is_in_the_words_that_its_clients_look_for(
    said: dict[str, Any], told: dict[str, Any]
) -> None:
    """Claude Code shortens the conversation only where it finds "prompt is too long"."""
    refused = Raw((json.dumps(said).encode(),), status=400, headers={"content-type": "application/json"})
    async with ScriptedProvider(refused) as provider:
        with pytest.raises(UpstreamRejected) as caught:
            await collect(provider, make_call(NATIVE % b"false", "messages"))
    expected = said if said["error"] == told else {"type": "error", "error": told}
    assert json.loads(caught.value.body) == expected


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("said", ["no", "is it sk-secret?"])
async def test_a_refusal_inside_a_200_is_told_as_another_is_and_without_our_key(said: str, is_stream: bool) -> None:
    error = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": said}})
    kind = "text/event-stream" if is_stream else "application/json"
    body = f"event: error\ndata: {error}\n\n" if is_stream else error
    async with (
        ScriptedProvider(Raw((body.encode(),), headers={"content-type": kind})) as provider,
        aclosing(AnthropicBackend("b", provider.base_url, "sk-secret")) as backend,
    ):
        with pytest.raises(UpstreamRejected) as caught:
            await read_stream.collect(backend, make_call(NATIVE % b"false", "messages", stream=is_stream))
    told = json.loads(caught.value.body or b"null")
    assert told == (json.loads(error) if said == "no" else None)
