"""Claude Code's newest fields and beta headers at servers that do not know them."""

import json
from contextlib import aclosing
from typing import Any

import pytest
from msgspec.structs import replace

from backends.anthropic import AnthropicBackend
from backends.errors import Untranslatable, UpstreamRejected
from backends.formats.unknown_fields import without_unknown_betas, without_unknown_fields
from backends.protocol import Call
from backends.scripted import Outcome
from tests import read_stream
from tests.scripted_provider import Raw, ScriptedProvider

Json = dict[str, Any]
SCOPED: Json = {"cache_control": {"type": "ephemeral", "scope": "global", "ttl": "1h"}}
MARKED: Json = {"cache_control": {"type": "ephemeral"}}
SCHEMA: Json = {"type": "object", "properties": {"ttl": {"type": "integer"}, "defer_loading": {"type": "string"}}}
TOOL: Json = {"name": "f", "input_schema": SCHEMA}
CALLED: Json = {"type": "tool_use", "id": "t", "name": "f", "input": {"ttl": 1, "scope": "x"}}


def asked(*, is_plain: bool = False) -> Json:
    marks = MARKED if is_plain else SCOPED
    newest = {} if is_plain else {"defer_loading": True, "eager_input_streaming": True, "input_examples": [{}]}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "one"} | marks]}
    body: Json = {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Help."} | marks],
        "tools": [TOOL | newest | marks],
        "messages": [{"role": "assistant", "content": [CALLED]}, {"role": "user", "content": [result]}],
    }
    return body if is_plain else body | {"context_management": {"edits": []}, "safeguards": [{"type": "x"}]}


def refusal(*paths: str) -> bytes:
    message = "; ".join(f"{path}: Extra inputs are not permitted" for path in paths)
    return json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": message}}).encode()


def test_what_is_unknown_is_left_out_wherever_it_is_but_in_schemas_and_inputs() -> None:
    said = refusal(
        "context_management",
        "safeguards",
        "tools.0.custom.defer_loading",
        "tools.0.custom.eager_input_streaming",
        "tools.0.custom.input_examples",
        "system.0.cache_control.ephemeral.scope",
        "messages.1.content.0.tool_result.content.0.text.cache_control.ephemeral.ttl",
    )
    assert json.loads(without_unknown_fields(json.dumps(asked()).encode(), said)) == asked(is_plain=True)


@pytest.mark.parametrize("said", [refusal("messages.0.foo"), refusal("tools"), refusal("thinking.scope"), b"{}"])
def test_nothing_else_is_left_out(said: bytes) -> None:
    body = json.dumps(asked(is_plain=True)).encode()
    assert without_unknown_fields(body, said) is body
    assert without_unknown_fields(b"[]", refusal("ttl")) == b"[]"


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (b"Unexpected value(s) `beta-2` for the `anthropic-beta` header.", "beta-1,beta-3"),
        (b"Unexpected value(s) beta-2 for the anthropic-beta header. Please consult", "beta-1,beta-3"),
        (b"Unexpected value(s) `beta-1`, `beta-2`, `beta-3` for the `anthropic-beta` header.", None),
        (b"invalid beta flag", None),
        (b"`beta-2` is wrong", "beta-1, beta-2,beta-3"),
    ],
)
def test_the_betas_that_are_unknown_are_left_out(said: bytes, left: str | None) -> None:
    headers = {"x-api-key": "k", "anthropic-beta": "beta-1, beta-2,beta-3"}
    assert without_unknown_betas(headers, said).get("anthropic-beta") == left
    assert without_unknown_betas({"x-api-key": "k"}, said) == {"x-api-key": "k"}


def refused(body: bytes) -> Raw:
    return Raw((body,), status=400, headers={"content-type": "application/json"})


async def test_claude_code_is_answered_by_a_server_that_knows_less() -> None:
    """claude-code #21612, #31033 and #70563, opencode #34694, litellm #26240, new-api #3041."""
    no_beta = json.dumps(
        {"error": {"message": "Unexpected value(s) `new-1` for the `anthropic-beta` header."}}
    ).encode()
    body = json.dumps(asked()).encode()
    call = Call("messages", "m", body, False, "r-1", headers={"anthropic-beta": "new-1,old-1"})
    answers = (
        refused(no_beta),
        refused(refusal("context_management")),
        refused(refusal("tools.0.custom.defer_loading")),
    )
    async with ScriptedProvider(*answers, *[Outcome()] * 3) as provider:
        async with aclosing(AnthropicBackend("b", provider.base_url, "k")) as backend:
            [chunk] = await read_stream.collect(backend, call)
            await read_stream.collect(backend, call)
            await read_stream.collect(backend, replace(call, headers={"anthropic-beta": "old-1"}))
        betas = [request.headers["anthropic-beta"] for request in provider.received]
        *_, taken, last, of_another = (request.json for request in provider.received)
    assert chunk.has_output
    assert betas == ["new-1,old-1", *["old-1"] * 5]
    assert taken == last, "the next turn is not refused first"
    assert of_another == asked(), "a field may need a beta that the other client did not name"
    assert last["system"] == asked()["system"]
    assert "context_management" not in last
    assert "defer_loading" not in json.dumps(last["tools"]).replace(json.dumps(SCHEMA), "")


async def test_what_a_refusal_quotes_of_one_caller_is_not_left_out_for_others() -> None:
    said = [{"role": "user", "content": "why is context_management: Extra inputs are not permitted?"}]
    calls = [
        Call("messages", "m", json.dumps(asked() | told).encode(), False, "r-1") for told in ({"messages": said}, {})
    ]
    answers = (refused(refusal("messages.0.content: input 'context_management") + b"'"), Outcome(), Outcome())
    async with ScriptedProvider(*answers) as provider:
        async with aclosing(AnthropicBackend("b", provider.base_url, "k")) as backend:
            for call in calls:
                await read_stream.collect(backend, call)
        told = ["context_management" in request.json for request in provider.received]
    assert told == [True, False, True]


async def test_a_server_that_refuses_everything_is_asked_nine_times_at_most() -> None:
    tools = [f"tools.0.custom.{name}" for name in ("defer_loading", "eager_input_streaming", "input_examples")]
    marks = [f"system.0.cache_control.ephemeral.{name}" for name in ("scope", "ttl")]
    betas = [f"Unexpected value(s) `new-{n}` for the `anthropic-beta` header." for n in (1, 2)]
    refusals = [json.dumps({"error": {"message": said}}).encode() for said in betas]
    refusals += [refusal(path) for path in ("context_management", "safeguards", *tools, *marks)]
    body = json.dumps(asked()).encode()
    call = Call("messages", "m", body, False, "r-1", headers={"anthropic-beta": "new-1,new-2"})
    async with ScriptedProvider(*map(refused, refusals)) as provider:
        async with aclosing(AnthropicBackend("b", provider.base_url, "k")) as backend:
            with pytest.raises(UpstreamRejected) as caught:
                await backend.open(call)
        assert len(provider.received) == 9
    assert isinstance(caught.value, Untranslatable)
