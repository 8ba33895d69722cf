"""What the Anthropic adapter sends again, changed, once it was refused."""

import json
from contextlib import aclosing
from typing import Any, cast

import pytest
from msgspec.structs import replace

from backends.anthropic import AnthropicBackend
from backends.errors import UpstreamRejected
from backends.protocol import Call, Operation
from tests import read_stream
from tests.scripted_provider import Raw, ScriptedProvider
from tests.unit.backends.anthropic_calls import NATIVE, OUTCOME, body_of, collect, make_call

BOUND = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."


@pytest.mark.parametrize(
    ("message", "has_more"),
    [
        (BOUND, True),
        (BOUND, False),
        ("messages.21.content.1: Invalid `data` in `redacted_thinking` block", True),  # kelivo #481
        (  # claude-code #63172, #63393, #63412, opencode #30200
            "messages.1.content.6: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
            "modified. These blocks must remain as they were in the original response.",
            True,
        ),
    ],
)
async def test_thinking_that_anthropic_cannot_read_is_left_out(message: str, has_more: bool) -> None:
    hello, said = {"role": "user", "content": "hi"}, {"type": "text", "text": "hello", "citations": None}
    thoughts = [{"type": "thinking", "thinking": "", "signature": "x"}, {"type": "redacted_thinking", "data": "y"}]
    answer = {"role": "assistant", "content": [*thoughts, said] if has_more else thoughts}
    body = json.dumps({"model": "auto", "messages": [hello, answer, hello], "thinking": {"type": "adaptive"}}).encode()
    error = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": message}}).encode()
    refused = Raw((error,), status=400, headers={"content-type": "application/json"})
    async with ScriptedProvider(refused, OUTCOME) as provider:
        [chunk] = await collect(provider, make_call(body, "messages"))
        asked = [request.json["messages"] for request in provider.received]
    assert chunk.usage == OUTCOME.usage
    assert asked == [[hello, answer, hello], [hello, *[answer | {"content": [said]}] * has_more, hello]]


MANAGED = b'{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}'


@pytest.mark.parametrize(
    "message",
    [
        "The `content[].thinking` in the thinking mode must be passed back to the API.",
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` "
        "is enabled, a final `assistant` message must start with a thinking block.",
    ],
)
async def test_thinking_is_turned_off_where_the_earlier_is_missing(message: str) -> None:
    refused = Raw((json.dumps({"error": {"message": message}}).encode(),), status=400, headers={})
    body = b'{"model":"auto","messages":[ ],"thinking":{"type":"adaptive"}}'
    managed = body.replace(b"}}", b'},"context_management":%b}' % MANAGED)
    async with ScriptedProvider(refused, OUTCOME, refused) as provider:
        [chunk] = await collect(provider, make_call(managed, "messages"))
        assert chunk.usage == OUTCOME.usage
        with pytest.raises(UpstreamRejected):
            await collect(provider, make_call(b'{"model":"auto"}', "messages"))
        asked = [request.body.replace(b'"claude-x"', b'"auto"') for request in provider.received]
    disabled = b'"thinking":{"type":"disabled"}'
    assert asked[:2] == [managed, body.replace(b'"thinking":{"type":"adaptive"}', disabled)]
    assert asked[2:] == [b'{"model":"auto"}', b'{"model":"auto",%b}' % disabled]


@pytest.mark.parametrize(
    ("message", "asked", "told"),
    [
        ("adaptive thinking is not supported on this model", b'{"type":"adaptive"}', None),
        (
            "thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags: 'disabled', "
            "'enabled'",
            b'{"type":"adaptive"}',
            None,
        ),
        (
            'event:error\ndata:{"code":"InvalidParameter","message":"Only \'enabled\' and \'disabled\' are supported '
            "for thinking; 'adaptive' is not supported.\"}",
            b'{"type":"adaptive"}',
            None,
        ),
        (
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
            '"output_config.effort" to control thinking behavior.',
            b'{"type":"enabled","budget_tokens":2000,"display":"omitted"}',
            {"type": "adaptive", "display": "omitted"},
        ),
    ],
)
async def test_a_kind_of_thinking_that_a_model_lacks_is_another_then_and_later(
    message: str, asked: bytes, told: object
) -> None:
    """Claude Code asks every model whose name it does not know for adaptive thinking, Haiku 4.5 behind `auto` too."""
    body = b'{"model":"auto","max_tokens":9000,"thinking":%b,"context_management":%b}' % (asked, MANAGED)
    refused = Raw((json.dumps({"error": {"message": message}}).encode(),), status=400, headers={})
    async with ScriptedProvider(refused, OUTCOME, OUTCOME, OUTCOME) as provider:
        async with aclosing(AnthropicBackend("b", provider.base_url, "key")) as backend:
            for model in ("claude-x", "claude-x", "another"):
                await read_stream.collect(backend, Call("messages", model, body, False, "r-1"))
        thinking = [request.json.get("thinking") for request in provider.received]
        managed = ["context_management" in request.json for request in provider.received]
    assert thinking == [json.loads(asked), told, told, json.loads(asked)]
    assert managed == [True, told is not None, told is not None, True]


async def test_a_refusal_of_thinking_stands_where_there_is_none() -> None:
    error = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": BOUND}}).encode()
    async with ScriptedProvider(Raw((error,), status=400, headers={})) as provider:
        for body in (NATIVE % b"false", b'{"model":"auto"}'):
            with pytest.raises(UpstreamRejected):
                await collect(provider, make_call(body, "messages"))
        assert len(provider.received) == 2


async def test_a_chat_that_called_tools_and_has_none_is_sent_again_with_those_it_called() -> None:
    """The Agents SDK has a conversation compacted without its tools."""
    message = "Requests which include `tool_use` or `tool_result` blocks must define tools."
    error = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": message}}).encode()
    refused = Raw((error,), status=400, headers={"content-type": "application/json"})
    call = {"id": "c", "type": "function", "function": {"name": "tide", "arguments": "{}"}}
    said = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "low"}]
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}, *said]}).encode()
    async with ScriptedProvider(refused, OUTCOME) as provider:
        await collect(provider, make_call(body, "chat.completions"))
        first, second = (request.json for request in provider.received)
    assert "tools" not in first
    assert second == first | {
        "tools": [{"name": "tide", "input_schema": {"type": "object", "properties": {}}}],
        "tool_choice": {"type": "none"},
    }


STRICT: dict[str, Any] = {
    "type": "function",
    "function": {"name": "f", "strict": True, "parameters": {"type": "object"}},
}


REFUSED = [
    "Schemas contains too many parameters with union types (17 parameters with type arrays or anyOf).",
    "Schema is too complex for compilation. Try reducing the number of tools or simplifying tool schemas.",
    "tools.0.custom: Invalid schema: Circular reference detected in schema definitions: Node -> Node.",
]


@pytest.mark.parametrize("message", REFUSED)
async def test_tools_that_are_too_much_to_be_strict_are_sent_again_without_that_promise(message: str) -> None:
    error = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": message}}).encode()
    refused = Raw((error,), status=400, headers={"content-type": "application/json"})
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "tools": [STRICT]}).encode()
    async with ScriptedProvider(refused, OUTCOME, OUTCOME) as provider:
        async with aclosing(AnthropicBackend("b", provider.base_url, "key")) as backend:
            for _ in range(2):
                await read_stream.collect(backend, make_call(body, "chat.completions"))
        told = [b'"strict":true' in request.body for request in provider.received]
    assert told == [True, False, False]


async def test_more_strict_tools_than_anthropic_takes_are_all_sent_without_that_promise() -> None:
    tools = [{**STRICT, "function": STRICT["function"] | {"name": f"f{number}"}} for number in range(21)]
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "tools": tools}).encode()
    assert b'"strict"' not in await body_of(make_call(body, "chat.completions"))


async def test_an_effort_that_a_template_behind_this_format_lacks_becomes_the_nearest() -> None:
    """vLLM passes Claude Code's `high` to the template, and Qwen3.8's answers 500."""
    said = "Unexpected reasoning effort high. Supported types are xhigh (default), medium, and low."
    body = json.dumps({"type": "error", "error": {"type": "internal_error", "message": said}}).encode()
    asked = b'{"model":"qwen","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"output_config":%b}'
    refused = Raw((body,), status=500, headers={"content-type": "application/json"})
    high, low = (make_call(asked % b'{"effort":"%b","x":1}' % one, "messages") for one in (b"high", b"low"))
    async with ScriptedProvider(refused, *[OUTCOME] * 3) as provider:
        async with aclosing(AnthropicBackend("b", provider.base_url, "key")) as backend:
            for call in (high, high, low):
                await read_stream.collect(backend, call)
        told = [request.json["output_config"] for request in provider.received]
    assert told == [{"effort": effort, "x": 1} for effort in ("high", "xhigh", "xhigh", "low")]


async def test_efforts_that_a_server_only_repeats_are_tried_once_and_not_learned() -> None:
    """Going from one to another until no try was left, it never came to what was refused."""
    said = "text content blocks must be non-empty, got: a reasoning_effort is valid if it is low or medium"
    error = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": said}}).encode()
    refused = Raw((error,), status=400, headers={"content-type": "application/json"})
    blank, text, words = ({"type": "text", "text": text} for text in ("", "hi", said))
    asked = {"model": "qwen", "max_tokens": 9, "output_config": {"effort": "high"}}
    bodies = (asked | {"messages": [{"role": "user", "content": parts}]} for parts in ([blank, text], [words], [text]))
    async with ScriptedProvider(refused, refused, OUTCOME, refused, OUTCOME, OUTCOME) as provider:
        async with aclosing(AnthropicBackend("b", provider.base_url, "key")) as backend:
            for body in bodies:
                await read_stream.collect(backend, make_call(json.dumps(body).encode(), "messages"))
        told: list[Any] = [request.json["output_config"] for request in provider.received]
    assert [config["effort"] for config in told] == ["high", "medium", "medium", "high", "medium", "high"]


async def test_what_a_server_names_one_after_the_other_is_all_left_out_and_then_at_once() -> None:
    """A refusal names the first alone, and Claude Code's requests have more than four that a server may not know: its
    every turn was a 400 there, and none of them was learned."""
    first = [
        f"{name}: Extra inputs are not permitted" for name in ("context_management", "tools.0.custom.defer_loading")
    ]
    then = [
        "system.0.cache_control.ephemeral.scope: Extra inputs are not permitted",
        "adaptive thinking is not supported",
    ]
    refused = [
        Raw(
            (json.dumps({"error": {"message": said}}).encode(),),
            status=400,
            headers={"content-type": "application/json"},
        )
        for said in ("invalid beta flag", *first, *then)
    ]
    asked = {
        "context_management": {},
        "tools": [{"name": "f", "input_schema": {}, "defer_loading": True}],
        "system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "scope": "global"}}],
        "thinking": {"type": "adaptive"},
    }
    call = make_call(json.dumps({"model": "m", "max_tokens": 9, "messages": [], **asked}).encode(), "messages")
    async with ScriptedProvider(*refused, OUTCOME, OUTCOME) as provider:
        async with aclosing(AnthropicBackend("b", provider.base_url, "key")) as backend:
            for _ in range(2):
                await read_stream.collect(backend, replace(call, headers={"anthropic-beta": "x"}))
        [taken, again] = provider.received[len(refused) :]
    assert taken.json == again.json
    assert taken.json.keys() == {"model", "max_tokens", "messages", "tools", "system"}


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("context_management: Extra inputs are not permitted", "context_management"),
        ("adaptive thinking is not supported on this model", "thinking"),
        ("Unexpected reasoning effort high. Supported types are low.", "output_config"),
    ],
)
async def test_what_a_count_does_not_know_is_sent_with_messages(message: str, name: str) -> None:
    """Counts are stricter (Anthropic's refuse a limit: sub2api #4913), and Claude Code counts with the same betas."""
    fields: Any = {
        "context_management": {},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
    }
    asked = {"model": "m", "max_tokens": 9, name: fields[name], "messages": [{"role": "user", "content": "hi"}]}
    body = json.dumps(asked).encode()
    said = json.dumps({"error": {"message": message}}).encode()
    refused = Raw((said,), status=400, headers={"content-type": "application/json"})
    count = Raw((b'{"input_tokens":14}',), headers={"content-type": "application/json"})
    async with ScriptedProvider(refused, count, count, OUTCOME) as provider:
        async with aclosing(AnthropicBackend("b", provider.base_url, "key")) as backend:
            for operation in ("messages.count_tokens", "messages.count_tokens", "messages"):
                await read_stream.collect(backend, make_call(body, operation))
        came = [request.json.get(name) == fields[name] for request in provider.received]
    assert came == [True, False, False, True]


@pytest.mark.parametrize("hidden", ["Extra", "\\u0045xtra"])
async def test_fields_that_a_refusal_may_only_have_repeated_are_sent_for_others(hidden: str) -> None:
    """Without `ttl` a cache's entry lasts five minutes, and is paid for again after them."""
    body = '{"model":"qwen","max_tokens":9,"scope":1,"ttl":"1h","messages":[{"role":"user","content":"%s"}]}'
    first, second = (body % text for text in (f"ttl: {hidden} inputs are not permitted", "hi"))
    said = json.dumps({"error": {"message": f"scope: Extra inputs are not permitted, got {json.loads(first)}"}})
    refused = Raw((said.encode(),), status=400, headers={"content-type": "application/json"})
    async with ScriptedProvider(refused, OUTCOME, OUTCOME) as provider:
        async with aclosing(AnthropicBackend("b", provider.base_url, "key")) as backend:
            for one in (first, second):
                await read_stream.collect(backend, make_call(one.encode(), "messages"))
        assert ["ttl" in request.json for request in provider.received] == [True, False, True]


@pytest.mark.parametrize(
    "message",
    [
        "messages: text content blocks must be non-empty",
        "messages: text content blocks must contain non-whitespace text",
        "messages.1: all messages must have non-empty content except for the optional final assistant message",
    ],
)
async def test_empty_texts_that_another_model_left_are_left_out_once_refused(message: str) -> None:
    body = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": message}}).encode()
    refused = Raw((body,), status=400, headers={"content-type": "application/json"})
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    user, blank = {"role": "user", "content": "hi"}, {"type": "text", "text": " "}
    empty = [{"role": "assistant", "content": [blank]}, {"role": "assistant", "content": ""}]
    said = [user, {"role": "assistant", "content": [blank, call]}, *empty, user]
    asked = json.dumps({"model": "claude", "max_tokens": 9, "messages": said}).encode()
    async with ScriptedProvider(refused, OUTCOME, refused) as provider:
        await collect(provider, make_call(asked, "messages"))
        with pytest.raises(UpstreamRejected):
            await collect(provider, make_call(NATIVE % b"false", "messages"))
        told = [request.json["messages"] for request in provider.received]
    assert told == [said, [user, {"role": "assistant", "content": [call]}, user], [user]]


async def test_a_picture_of_another_type_than_it_came_under_is_sent_again_under_its_own() -> None:
    """A screenshot in JPEG under image/png ended a conversation: Claude refused each later turn of it too."""
    message = "The image was specified using the image/png media type, but the image appears to be a image/jpeg image"
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    refused = Raw((json.dumps(error).encode(),), status=400, headers={"content-type": "application/json"})
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "/9j/4AAQ"}}
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,/9j/4AAQ"}}
    asked: list[tuple[Operation, Any]] = [("messages", block), ("chat.completions", part)]
    for operation, picture in asked:
        body = json.dumps({"model": "auto", "max_tokens": 9, "messages": [{"role": "user", "content": [picture]}]})
        async with ScriptedProvider(refused, OUTCOME) as provider:
            await collect(provider, make_call(body.encode(), operation))
            shown: list[Any] = [request.json["messages"] for request in provider.received]
        told = [messages[0]["content"][0]["source"]["media_type"] for messages in shown]
        assert told == ["image/png", "image/jpeg"]


async def test_calls_of_one_id_are_sent_again_under_ids_of_their_own() -> None:
    message = "messages.3.content.0: `tool_use` ids must be unique"
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    refused = Raw((json.dumps(error).encode(),), status=400, headers={"content-type": "application/json"})
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]}
    body = json.dumps({"model": "auto", "messages": [call, result, call, result]}).encode()
    async with ScriptedProvider(refused, OUTCOME) as provider:
        await collect(provider, make_call(body, "messages"))
        told = cast(list[Any], provider.received[1].json["messages"])
    assert told[:2] == [call, result]
    assert told[2]["content"][0]["id"] == told[3]["content"][0]["tool_use_id"] != "c"
