"""Chats that a model's template refuses are sent again in the order that it takes."""

import json
from contextlib import aclosing
from typing import cast

import pytest
from msgspec.structs import replace

from backends.anthropic import AnthropicBackend
from backends.errors import Untranslatable, UpstreamRejected
from backends.gemini import GeminiBackend
from backends.openai_compatible import OpenAICompatibleBackend
from backends.protocol import Call, Timeouts
from backends.scripted import Outcome
from tests import read_stream
from tests.hand_clock import HandClock
from tests.scripted_provider import Raw, ScriptedProvider

JSON = {"content-type": "application/json"}
LATE = b'{"messages":[{"role":"user","content":"a"},{"role":"system","content":"b"}],"stream":true}'
RESULT = b'{"role":"tool","content":"b"}'
CALLS = b'{"stream":true,"messages":[{"role":"user","content":"a"},%b,{"role":"user","content":"c"}]}' % RESULT


def ask(body: bytes, model: str = "m") -> Call:
    return Call("chat.completions", model, body, True, "r-1", Timeouts())


def refusal(status: int, message: str) -> Raw:
    return Raw((json.dumps({"error": {"message": message}}).encode(),), status=status, headers=JSON)


def roles_in(provider: ScriptedProvider) -> list[list[str]]:
    chats = (cast(list[dict[str, str]], request.json["messages"]) for request in provider.received)
    return [[one["role"] for one in messages] for messages in chats]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "System message must be at the beginning."),
        (500, "Error: Jinja Exception: System message must be at the beginning."),
        (500, "System message must be at the beginning."),
    ],
)
async def test_a_late_system_message_is_a_users_from_the_first_refusal_on(status: int, message: str) -> None:
    """Codex and Claude Code send one with each request, and Qwen3.5 and later refuse it."""
    answers = (refusal(status, message), refusal(400, "stream_options is not supported"), *[Outcome()] * 3)
    async with ScriptedProvider(*answers) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            for call in (ask(LATE), ask(LATE), ask(LATE, "another")):
                await read_stream.collect(backend, call)
        assert roles_in(provider) == [["user", "system"], *[["user", "user"]] * 3, ["user", "system"]]
        assert ["stream_options" in request.json for request in provider.received] == [True, True, False, False, True]


async def test_a_server_that_was_updated_is_asked_as_before_after_an_hour() -> None:
    """Without the question for usage, the model's streams were estimates until the next restart."""
    clock = HandClock()
    answers = (refusal(400, "System message must be at the beginning."), refusal(400, "stream_options is unsupported"))
    async with ScriptedProvider(*answers, *[Outcome()] * 3) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None, monotonic=clock)) as backend:
            for seconds in (0.0, 3599.0, 1.0):
                clock.now += seconds
                await read_stream.collect(backend, ask(LATE))
        assert roles_in(provider) == [["user", "system"], *[["user", "user"]] * 3, ["user", "system"]]
        assert ["stream_options" in request.json for request in provider.received] == [True, True, False, False, True]


async def test_a_user_speaks_after_a_tool_only_where_that_is_taken() -> None:
    async with ScriptedProvider(refusal(400, "Unexpected role 'user' after role 'tool'"), Outcome()) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            await read_stream.collect(backend, ask(CALLS))
        assert roles_in(provider) == [["user", "tool", "user"], ["user", "tool", "assistant", "user"]]


@pytest.mark.parametrize(
    "message",
    [
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
    ],
)
async def test_a_turn_without_thinking_has_a_blank_one_where_it_is_missed(message: str) -> None:
    """Kimi and DeepSeek behind other providers' addresses: conversations ended with the first call of another model."""
    call = b'{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"f"}}]}'
    body = CALLS.replace(RESULT, call + b',{"role":"tool","tool_call_id":"c","content":"b"}')
    async with ScriptedProvider(refusal(400, message), Outcome(), Outcome()) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            for _ in range(2):
                await read_stream.collect(backend, ask(body))
        turns = [cast(list[dict[str, str]], request.json["messages"])[1] for request in provider.received]
        assert [turn.get("reasoning_content") for turn in turns] == [None, " ", " "]


@pytest.mark.parametrize("status", [400, 500])
async def test_another_model_is_asked_where_the_template_takes_neither(status: int) -> None:
    """With 500 it closed the model to everybody."""
    answers = [refusal(status, "Jinja Exception: System message must be at the beginning.")] * 3
    async with ScriptedProvider(*answers, Outcome()) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            with pytest.raises(Untranslatable) as caught:
                await backend.open(ask(LATE))
            with pytest.raises(Untranslatable):
                await backend.open(ask(CALLS))
        assert caught.value.status == 400
        assert roles_in(provider) == [["user", "system"], ["user", "user"], ["user", "tool", "user"]]


async def test_a_caller_whose_words_a_refusal_repeats_changes_nobody_elses_chats() -> None:
    """The second user's name is wrong and, once the two are one, gone."""
    said = [{"role": "user", "content": "a"}, {"role": "user", "content": "b", "name": "must alternate!"}]
    odd = json.dumps({"messages": said, "stream": True}).encode().replace(b"must", rb"m\u0075st")
    plain = odd.replace(rb', "name": "m\u0075st alternate!"', b"")
    answers = (refusal(400, "messages[1].name: not a valid name: 'must alternate!'"), Outcome(), Outcome())
    async with ScriptedProvider(*answers) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            for call in (ask(odd), ask(plain)):
                await read_stream.collect(backend, call)
        assert roles_in(provider) == [["user", "user"], ["user"], ["user", "user"]]


async def test_a_server_that_quotes_the_request_is_not_taken_to_refuse_its_stream_options() -> None:
    """FastAPI's errors end with the whole input. Without the question for usage, the model's streams were estimates."""
    said = "System message must be at the beginning. 'input': {'stream_options': {'include_usage': True}}"
    async with ScriptedProvider(refusal(400, said), Outcome(), Outcome()) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            await read_stream.collect(backend, ask(LATE))
            await read_stream.collect(backend, ask(LATE))
        assert roles_in(provider) == [["user", "system"], *[["user", "user"]] * 2]
        assert all("stream_options" in request.json for request in provider.received)


async def test_two_calls_of_one_id_are_not_sent_again_for_ever() -> None:
    """Each mend for them adds a message, so there was always one more to try."""
    twice = {"role": "assistant", "tool_calls": [CALL, CALL]}
    body = json.dumps({"messages": [ASKED, twice, ASKED], "stream": True}).encode()
    said = "An assistant message with 'tool_calls' must be followed by tool messages"
    async with ScriptedProvider(*[refusal(400, said)] * 2, refusal(400, "the end")) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            with pytest.raises(UpstreamRejected):
                await backend.open(ask(body))
        assert len(provider.received) == 2


async def test_a_chat_that_is_mended_when_asked_is_not_refused_when_counted() -> None:
    refused = refusal(400, "The model's chat template refused the messages: System message must be at the beginning.")
    async with (
        ScriptedProvider(refused, refused, Outcome()) as provider,
        aclosing(OpenAICompatibleBackend("b", provider.base_url, None, health_from="engine")) as backend,
    ):
        assert await backend.count_chat(ask(LATE)) is None
        await read_stream.collect(backend, ask(LATE))


@pytest.mark.parametrize("status", [400, 500])
async def test_an_effort_that_the_template_does_not_know_becomes_the_nearest(status: int) -> None:
    """Claude Code asks for `high` with each request, and Qwen3.8 takes `xhigh`, `medium` and `low` alone."""
    refused = refusal(status, "Unexpected reasoning effort high. Supported types are xhigh (default), medium, and low.")
    high, low = (LATE[:-1] + b',"reasoning_effort":"%b"}' % effort for effort in (b"high", b"low"))
    async with ScriptedProvider(refused, *[Outcome()] * 4) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            for call in (ask(high), ask(high), ask(low), ask(high, "another")):
                await read_stream.collect(backend, call)
        efforts = [request.json["reasoning_effort"] for request in provider.received]
        assert efforts == ["high", "xhigh", "xhigh", "low", "high"]
    async with ScriptedProvider(refused, refused) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            with pytest.raises(Untranslatable):
                await backend.open(ask(high))
        assert len(provider.received) == 2


async def test_an_effort_that_was_not_what_a_server_refused_is_not_changed_for_others() -> None:
    """It repeats the whole chat, which names its effort and has the words of an offer."""
    asked = (
        b'{"messages":[{"role":"user","content":"Is this valid? Say low."}],"reasoning_effort":"high","stream":true}'
    )
    refused = refusal(400, f"stream_options: Extra inputs are not permitted, input: {asked.decode()}")
    async with ScriptedProvider(refused, refused, Outcome(), Outcome()) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            for _ in range(2):
                await read_stream.collect(backend, ask(asked))
        assert provider.received[-1].json["reasoning_effort"] == "high"


@pytest.mark.parametrize("path", ["reasoning_effort/valid/low", r"reasoning\u005feffort/valid/low", "stream_options"])
async def test_a_chats_own_words_in_what_is_refused_for_a_moment_teach_nothing_about_others(path: str) -> None:
    """Its caller's server gives the picture at the second time alone. So a tenant could lower everybody's effort, or
    keep everybody's usage from the books, for an hour."""
    other = LATE[:-1] + b',"reasoning_effort":"high"}'
    refused = refusal(400, "could not fetch " + path.replace(r"\u005f", "_"))
    async with ScriptedProvider(refused, *[Outcome()] * 2) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            for asked in (other.replace(b'"a"', b'"%b"' % path.encode()), other):
                await read_stream.collect(backend, ask(asked))
        told = [(request.json["reasoning_effort"], "stream_options" in request.json) for request in provider.received]
    assert told[0] == told[2] != told[1]


async def test_a_screenshot_in_a_tools_result_is_shown_by_the_user() -> None:
    """Copilot and other agents send it there, and it stays in the conversation."""
    no_images = refusal(400, "Invalid 'messages[1]'. ... this message with role 'tool' contains an image URL.")
    no_user = refusal(400, "Unexpected role 'user' after role 'tool'")
    result = {"role": "tool", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}
    body = json.dumps({"messages": [{"role": "user", "content": "a"}, result], "stream": True}).encode()
    async with ScriptedProvider(no_images, no_user, Outcome(), Outcome()) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            await read_stream.collect(backend, ask(body))
            await read_stream.collect(backend, ask(body))
        told = ["user", "tool", "assistant", "user"]
        assert roles_in(provider) == [["user", "tool"], ["user", "tool", "user"], told, told]


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ASKED = {"role": "user", "content": "a"}
STOPPED = [ASKED, {"role": "assistant", "tool_calls": [CALL]}, ASKED]


async def test_claude_and_gemini_are_told_that_a_call_was_interrupted() -> None:
    body = json.dumps({"messages": STOPPED, "stream": True}).encode()
    said = "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: c"
    async with ScriptedProvider(refusal(400, said), Outcome()) as provider:
        async with aclosing(AnthropicBackend("b", provider.base_url, None)) as claude:
            await read_stream.collect(claude, ask(body))
        [_, mended] = provider.received
        assert "tool_result" in mended.body.decode()
    said = "Please ensure that the number of function response parts is equal to the number of function call parts."
    async with ScriptedProvider(refusal(400, said), refusal(400, "no")) as provider:
        async with aclosing(GeminiBackend("b", provider.base_url, None)) as gemini:
            with pytest.raises(UpstreamRejected):
                await gemini.open(ask(body))
        [_, mended] = provider.received
        assert "functionResponse" in mended.body.decode()


async def test_qwen_thinks_only_where_it_is_streamed() -> None:
    """DashScope refuses all else from Qwen3's open models, which think by default."""
    refused = refusal(400, "parameter.enable_thinking must be set to false for non-streaming calls")
    whole = replace(ask(b'{"messages":[{"role":"user","content":"a"}]}'), is_stream=False)
    async with ScriptedProvider(refused, *[Outcome()] * 3) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            for call in (whole, whole, ask(LATE)):
                await read_stream.collect(backend, call)
        told = [request.json.get("enable_thinking") for request in provider.received]
        assert told == [None, False, False, None]


@pytest.mark.parametrize(
    ("status", "said"),
    [  # mlx_lm.server 0.32.2, Infinity 0.0.78, llama-cpp-python 0.3.36
        (400, b"{\"error\": \"temperature must be of type ('float', 'int')\"}"),
        (
            422,
            b'{"detail":[{"type":"float_type","loc":["body","temperature"],"msg":"Input should be a valid number",'
            b'"input":null}]}',
        ),
        (
            500,
            b"{\"error\":{\"message\":\"1 validation error:\\n  {'type': 'float_type', 'loc': ('body', "
            b"'temperature'), 'msg': 'Input should be a valid number', 'input': None}\\n\",\"type\":"
            b'"internal_server_error","param":null,"code":null}}',
        ),
    ],
)
async def test_what_is_null_is_left_out_where_that_is_refused(status: int, said: bytes) -> None:
    """openai for Python sends `temperature=None` as null."""
    body = b'{"messages":[{"role":"user","content":"a"}],"stream":true,"temperature":null}'
    async with ScriptedProvider(Raw((said,), status=status, headers=JSON), *[Outcome()] * 2) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            for _ in range(2):
                await read_stream.collect(backend, ask(body))
        assert ["temperature" in request.json for request in provider.received] == [True, False, False]


async def test_a_function_without_parameters_says_so_only_where_that_is_asked_for() -> None:
    """Qwen Code's prompts failed at MiniMax."""
    refused = refusal(400, "invalid params, function parameters is empty (2013)")
    body = json.dumps({"messages": [ASKED], "stream": True, "tools": [{"type": "function", "function": {"name": "f"}}]})
    async with ScriptedProvider(refused, *[Outcome()] * 3) as provider:
        async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
            for model in ("m", "m", "another"):
                await read_stream.collect(backend, ask(body.encode(), model))
        assert ["parameters" in request.body.decode() for request in provider.received] == [False, True, True, False]


@pytest.mark.parametrize("message", ["Corrupted thought signature.", "Invalid thought signature."])
@pytest.mark.parametrize("kind", [OpenAICompatibleBackend, GeminiBackend])
async def test_a_thought_signature_that_gemini_cannot_read_is_replaced_in_this_chat_alone(
    kind: type[OpenAICompatibleBackend] | type[GeminiBackend], message: str
) -> None:
    """Another model's or account's: crush #1698, Antigravity-Manager #970 and #3342. Other chats' are good."""

    def call(signature: str) -> bytes:
        signed = {"extra_content": {"google": {"thought_signature": signature, "x": 1.5}}}
        calls = [{"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in ("a", "b")]
        said = [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [calls[0] | signed, calls[1]]}]
        results = [{"role": "tool", "tool_call_id": one, "content": "1"} for one in ("a", "b")]
        return json.dumps({"messages": [*said, *results]}).encode()

    placeholder = "skip_thought_signature_validator"
    answer = {"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]}
    answer |= {"candidates": [{"content": {"parts": [{"text": "ok"}]}, "finishReason": "STOP"}]}
    taken = Raw((json.dumps(answer).encode(),), headers=JSON)
    async with ScriptedProvider(refusal(400, message), taken, taken) as provider:
        async with aclosing(kind("b", provider.base_url, None)) as backend:
            for signature in ("lost", "good"):
                await read_stream.collect(backend, replace(ask(call(signature)), is_stream=False))
        asked = [request.body.decode() for request in provider.received]
    assert ["lost" in body for body in asked] == [True, False, False]
    assert [body.count(placeholder) for body in asked] == ([0, 1, 0] if kind is OpenAICompatibleBackend else [1, 2, 1])
    assert "good" in asked[2]
