"""Chats with models that OpenAI offers only over the Responses API: where they are sent, and what is retried."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from backends.dialects import dialect_of
from backends.errors import Untranslatable, UpstreamRejected
from backends.formats.past_thinking import carry, detail_of
from backends.openai_compatible import DEFAULT_PATHS, OPENAI_PATHS, OpenAICompatibleBackend
from backends.protocol import Call, Timeouts
from backends.scripted import Outcome
from tests.read_stream import collect
from tests.scripted_provider import Raw, ScriptedProvider

Json = dict[str, Any]
TOOLS: Json = {"tools": [{"type": "function", "function": {"name": "look_up"}}]}
CHAT, RESPONSE = "/v1/chat/completions", "/v1/responses"


def make_call(upstream: str, model: str = "auto", **body: Any) -> Call:
    raw = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}], **body}).encode()
    return Call("chat.completions", upstream, raw, False, "r-1")


def refusal(message: str, status: int = 400, **error: Any) -> Raw:
    said = {"message": message, "type": "invalid_request_error", "param": None, "code": None, **error}
    return Raw((json.dumps({"error": said}).encode(),), status=status, headers={"content-type": "application/json"})


def make_backend(provider: ScriptedProvider, **changes: Any) -> OpenAICompatibleBackend:
    how: Json = {"paths": OPENAI_PATHS, "dialect": dialect_of("openai")} | changes
    return OpenAICompatibleBackend("openai", provider.base_url, "sk-test", **how)


async def asked(provider: ScriptedProvider, backend: OpenAICompatibleBackend, *calls: Call) -> list[str]:
    """Sends these chats and returns the requested paths."""
    for call in calls:
        [chunk] = await collect(backend, call)
        assert chunk.has_output
    await backend.aclose()
    return [received.path for received in provider.received]


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (make_call("gpt-4o", **TOOLS), CHAT),
        (make_call("gpt-6-luna", **TOOLS), CHAT),
        (make_call("gpt-6-luna", reasoning_effort="high", **TOOLS), RESPONSE),
        (make_call("gpt-6.1-sol"), CHAT),
        (make_call("gpt-6.1-sol", **TOOLS), RESPONSE),
        (make_call("gpt-5-pro"), RESPONSE),
        (make_call("gpt-5-pro", "gpt-5-pro"), RESPONSE),
    ],
)
async def test_where_a_chat_goes(call: Call, path: str) -> None:
    async with ScriptedProvider() as provider:
        assert await asked(provider, make_backend(provider), call) == [path]
        headers = {name.lower(): value for name, value in provider.received[0].headers.items()}
        assert (headers["x-request-id"], headers["authorization"]) == ("r-1", "Bearer sk-test")


async def test_where_there_are_no_responses_it_is_asked_as_a_chat_as_ever() -> None:
    async with ScriptedProvider() as provider:
        backend = make_backend(provider, paths=DEFAULT_PATHS)
        assert await asked(provider, backend, make_call("gpt-5-codex")) == [CHAT]
        with pytest.raises(Untranslatable, match="/v1/responses alone"):
            await collect(backend, make_call("gpt-6.1-sol", **TOOLS))


async def test_what_responses_cannot_say_may_be_asked_of_another_model() -> None:
    async with ScriptedProvider() as provider:
        with pytest.raises(Untranslatable, match="only one choice"):
            await collect(make_backend(provider), make_call("gpt-5-pro", n=2))
        assert not provider.received


NO_CHATS = refusal(
    "This model is only supported in v1/responses and not in v1/chat/completions.", status=404, param="model"
)
BEDROCKS = refusal("The model 'openai.gpt-5.6-luna' does not support the '/v1/chat/completions' API", param=None)
NO_FUNCTIONS = refusal(
    "Function tools with reasoning_effort are not supported for gpt-7-sol in /v1/chat/completions. To use function "
    "tools, use /v1/responses or set reasoning_effort to 'none'.",
    param="reasoning_effort",
)


@pytest.mark.parametrize("refused", [NO_CHATS, BEDROCKS])
async def test_a_model_that_says_that_it_answers_no_chats_is_asked_none_again(refused: Raw) -> None:
    async with ScriptedProvider(refused, Outcome()) as provider:
        backend = make_backend(provider)
        call = make_call("gpt-7-rosalind", "gpt-7-rosalind")
        assert await asked(provider, backend, call, call) == [CHAT, RESPONSE, RESPONSE]


async def test_a_chat_that_is_refused_for_its_endpoint_is_asked_there() -> None:
    """By a deployment with a custom name, whose model is unknown."""
    async with ScriptedProvider(NO_FUNCTIONS, Outcome()) as provider:
        backend = make_backend(provider, dialect=dialect_of("azure"))
        assert await asked(provider, backend, make_call("ours", **TOOLS), make_call("ours")) == [CHAT, RESPONSE, CHAT]


async def test_other_refusals_are_passed_on() -> None:
    said = "Invalid value: 'only supported in v1 / responses'"
    async with ScriptedProvider(refusal(said, param="messages")) as provider:
        with pytest.raises(UpstreamRejected) as caught:
            await collect(make_backend(provider), make_call("gpt-4o"))
        assert json.loads(caught.value.body)["error"]["message"] == said
        assert len(provider.received) == 1
    async with ScriptedProvider(refusal(said, param="input")) as provider:
        with pytest.raises(UpstreamRejected):
            await collect(make_backend(provider), make_call("gpt-5-pro", reasoning_effort="high"))
        assert len(provider.received) == 1


NO_SUMMARY = refusal(
    "Your organization must be verified to generate reasoning summaries.",
    param="reasoning.summary",
    code="unsupported_value",
)


async def test_who_may_sum_up_no_thoughts_is_asked_for_none_from_then_on() -> None:
    async with ScriptedProvider(NO_SUMMARY, Outcome()) as provider:
        call = make_call("gpt-5-pro", reasoning_effort="high")
        assert await asked(provider, make_backend(provider), call, call) == [RESPONSE] * 3
        summaries = [received.json["reasoning"] for received in provider.received]
    assert summaries == [{"effort": "high", "summary": "auto"}, {"effort": "high"}, {"effort": "high"}]


UNREADABLE = refusal("The encrypted content gAAA could not be verified.", code="invalid_encrypted_content")


async def test_what_another_account_encrypted_is_left_out() -> None:
    called = {
        "role": "assistant",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}],
        "reasoning_details": [detail_of(carry("gAAA", "openai"), 0)],
    }
    messages = [{"role": "user", "content": "hi"}, called, {"role": "tool", "tool_call_id": "c", "content": "1"}]
    async with ScriptedProvider(UNREADABLE, Outcome()) as provider:
        call = make_call("gpt-6.1-sol", messages=messages, **TOOLS)
        assert await asked(provider, make_backend(provider), call, call) == [RESPONSE] * 3
        kinds = [[item["type"] for item in cast_list(received.json["input"])] for received in provider.received]
    whole = ["message", "reasoning", "function_call", "function_call_output"]
    assert kinds == [whole, [kind for kind in whole if kind != "reasoning"], whole]


async def test_a_call_without_a_result_gets_one() -> None:
    no_output = refusal("No tool output found for function call c.", param="input")
    call = {"id": "c", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    messages = [{"role": "assistant", "tool_calls": [call]}, {"role": "user", "content": "never mind"}]
    async with ScriptedProvider(no_output, Outcome()) as provider:
        await asked(provider, make_backend(provider), make_call("gpt-6.1-sol", messages=messages, **TOOLS))
        kinds = [[item["type"] for item in cast_list(received.json["input"])] for received in provider.received]
    assert kinds == [["function_call", "message"], ["function_call", "function_call_output", "message"]]


NOTHING_ENCRYPTED = refusal("Encrypted content is not supported with this model.", param="include")


async def test_a_model_that_encrypts_nothing_is_asked_for_none_again() -> None:
    async with ScriptedProvider(NOTHING_ENCRYPTED, Outcome()) as provider:
        call = make_call("gpt-5-pro")
        assert await asked(provider, make_backend(provider), call, call) == [RESPONSE] * 3
        assert ["include" in received.json for received in provider.received] == [True, False, False]


async def test_it_is_not_asked_for_ever() -> None:
    async with ScriptedProvider(NO_SUMMARY, UNREADABLE, UNREADABLE) as provider:
        with pytest.raises(UpstreamRejected):
            await collect(make_backend(provider), make_call("gpt-5-pro", reasoning_effort="high"))
        assert len(provider.received) == 3


async def test_a_model_may_think_longer_than_a_stream_may_be_idle() -> None:
    """The first events only confirm the request."""
    said = json.dumps({"type": "response.output_text.delta", "delta": "hello"})
    done = json.dumps({"type": "response.completed", "response": {"status": "completed"}})
    pieces = (
        b'data: {"type":"response.created","response":{"id":"resp_1"}}\n\n',
        f"data: {said}\n\ndata: {done}\n\n".encode(),
    )
    async with ScriptedProvider(Raw(pieces, pause_seconds=1.0)) as provider:
        call = make_call("gpt-5-pro", stream=True)
        call = replace(call, is_stream=True, timeouts=Timeouts(idle_seconds=0.3))
        chunks = await collect(make_backend(provider), call)
    assert sum(chunk.output_characters for chunk in chunks) == len("hello")
    assert chunks[-1].is_done


async def test_what_is_carried_for_one_model_is_told_no_other() -> None:
    answer = {"role": "assistant", "content": "x", "reasoning_details": [detail_of(carry("gAAA", "openai"), 0)]}
    messages = [{"role": "user", "content": "hi"}, answer, {"role": "user", "content": "go on"}]
    async with ScriptedProvider() as provider:
        await asked(provider, make_backend(provider), make_call("gpt-4o", messages=messages))
        assert provider.received[0].json["messages"] == [
            messages[0],
            {"role": "assistant", "content": "x"},
            messages[2],
        ]


def cast_list(value: object) -> list[Json]:
    assert isinstance(value, list)
    return value
