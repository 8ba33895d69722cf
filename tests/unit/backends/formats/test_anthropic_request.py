"""Chat bodies in Anthropic's format: what is translated, dropped or rejected."""

import json
import sys
from typing import cast

import pytest

from backends.errors import Untranslatable, UpstreamRejected
from backends.formats.anthropic_request import DEFAULT_MAX_TOKENS, DEFAULT_WITH_THOUGHTS, build_messages_body
from backends.formats.chat_view import ToolCall, parse_chat
from backends.formats.user_ids import user_of_anthropic
from backends.protocol import Call
from tests.unit.backends.formats.anthropic_bodies import CALL, HI, HI_SAID, OLDER, SCHEMA, TOOL, Json, ask, translate

CLOSED = SCHEMA | {"additionalProperties": False}


def test_the_least_body() -> None:
    assert translate({}) == {"model": OLDER, "max_tokens": DEFAULT_MAX_TOKENS, "messages": HI_SAID}


BY_ITSELF: Json = {"thinking": {"type": "adaptive"}, "max_tokens": DEFAULT_WITH_THOUGHTS}
FIELDS: list[tuple[Json, Json]] = [
    ({"max_tokens": 5}, {"max_tokens": 5}),
    ({"max_completion_tokens": 6, "max_tokens": 5}, {"max_tokens": 6}),
    ({"temperature": 1.7, "top_p": 0.5}, {"temperature": 1}),
    ({"temperature": 0}, {"temperature": 0}),
    ({"stop": "x"}, {"stop_sequences": ["x"]}),
    ({"stop": ["x", "y"]}, {"stop_sequences": ["x", "y"]}),
    ({"user": "u1"}, {"metadata": {"user_id": "u1"}}),
    ({"user": "a@b.c"}, {"metadata": {"user_id": user_of_anthropic("a@b.c")}}),
    ({"service_tier": "default"}, {"service_tier": "standard_only"}),
    ({"reasoning_effort": "none"}, {"output_config": {"effort": "low"}}),
    ({"reasoning_effort": "high"}, {"output_config": {"effort": "high"}} | BY_ITSELF),
    ({"reasoning_effort": "xhigh"}, {"output_config": {"effort": "max"}} | BY_ITSELF),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}},
        {"output_config": {"format": {"type": "json_schema", "schema": CLOSED}}},
    ),
    (
        {"response_format": {"type": "json_object", "value": SCHEMA}},
        {"output_config": {"format": {"type": "json_schema", "schema": CLOSED}}},
    ),
    (
        {"response_format": {"type": "json_schema", "schema": SCHEMA}},
        {"output_config": {"format": {"type": "json_schema", "schema": CLOSED}}},
    ),
    (
        {"response_format": {"type": "json_object"}},
        {"system": [{"type": "text", "text": "Answer with one JSON object and nothing else."}]},
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}},
        {"system": [{"type": "text", "text": "Answer with one JSON object and nothing else."}]},
    ),
    ({"response_format": {"type": "text"}}, {}),
    ({"tools": [TOOL]}, {"tools": [{"name": "f", "description": "d", "input_schema": CLOSED, "strict": True}]}),
    (
        {"functions": [{"name": "g"}], "tool_choice": "required"},
        {
            "tools": [{"name": "g", "input_schema": {"type": "object", "properties": {}}}],
            "tool_choice": {"type": "any"},
        },
    ),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": False},
        {
            "tools": [{"name": "f", "description": "d", "input_schema": CLOSED, "strict": True}],
            "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        },
    ),
    ({"tool_choice": "none"}, {"tool_choice": {"type": "none"}}),
    ({"tool_choice": "any"}, {"tool_choice": {"type": "any"}}),
    ({"user": "u"}, {"metadata": {"user_id": "u"}}),
    ({"user": "u", "safety_identifier": "s"}, {"metadata": {"user_id": "s"}}),
    ({"thinking": {"type": "adaptive"}}, BY_ITSELF),
    ({"thinking": {"type": "enabled"}}, {}),
    ({"thinking": {"type": "adaptive", "keep": "all"}}, BY_ITSELF),
    ({"thinking": True}, {}),
]


BUDGET: Json = {"type": "enabled", "budget_tokens": 1024}
ADAPTIVE: Json = {"type": "adaptive"}


@pytest.mark.parametrize(
    ("thinking", "after_a_call", "later"),
    [
        (BUDGET, None, BUDGET),
        (ADAPTIVE, ADAPTIVE, ADAPTIVE),
        ({"type": "disabled"}, {"type": "disabled"}, {"type": "disabled"}),
    ],
)
def test_no_budget_is_asked_for_where_anthropic_wants_back_what_it_thought(
    thinking: Json, after_a_call: Json | None, later: Json
) -> None:
    called = [*HI, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c1", "content": "7"}]
    answered = [*called, {"role": "assistant", "content": "It is 7."}, *HI]
    assert translate({"thinking": thinking, "messages": called}).get("thinking") == after_a_call
    assert translate({"thinking": thinking, "messages": answered}).get("thinking") == later


@pytest.mark.parametrize(
    ("beside", "told"),
    [
        ({}, {"max_tokens": DEFAULT_MAX_TOKENS + 9000, "thinking": BUDGET | {"budget_tokens": 9000}}),
        ({"max_tokens": 9001}, {"max_tokens": 9001, "thinking": BUDGET | {"budget_tokens": 9000}}),
        ({"max_tokens": 4000}, {"max_tokens": 4000, "thinking": BUDGET | {"budget_tokens": 3999}}),
        ({"max_tokens": 1024}, {"max_tokens": 1024}),
    ],
)
def test_a_budget_is_less_than_the_limit(beside: Json, told: Json) -> None:
    body = translate({"thinking": BUDGET | {"budget_tokens": 9000}} | beside)
    assert {name: body[name] for name in ("max_tokens", "thinking") if name in body} == told


@pytest.mark.parametrize("thinking", [BUDGET, ADAPTIVE])
def test_claude_is_not_told_how_to_draw_tokens_while_it_thinks(thinking: Json) -> None:
    sampled: Json = {"thinking": thinking, "temperature": 0, "top_p": 0.5}
    assert translate(sampled).keys().isdisjoint({"temperature", "top_p"})
    assert translate(sampled | {"top_p": 0.95})["top_p"] == 0.95
    assert translate(sampled, model="deepseek-v4")["temperature"] == 0
    assert translate(sampled | {"thinking": {"type": "disabled"}})["temperature"] == 0


@pytest.mark.parametrize(
    "beside",
    [
        {"tools": [TOOL], "tool_choice": "required"},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"messages": [*HI, {"role": "assistant", "content": "It"}]},
    ],
)
def test_no_thinking_is_asked_for_with_a_forced_tool_or_a_prefill(beside: Json) -> None:
    body = translate({"thinking": BUDGET, "temperature": 0} | beside)
    assert "thinking" not in body
    assert body["temperature"] == 0
    for model, asked in ((OLDER, ADAPTIVE), (NEWER, ADAPTIVE), (NEWER, BUDGET)):
        is_told = "thinking" in translate({"thinking": asked} | beside, model=model)
        assert is_told == ("tools" not in beside)


@pytest.mark.parametrize(("body", "expected"), FIELDS)
def test_fields(body: Json, expected: Json) -> None:
    least = {"model": OLDER, "max_tokens": DEFAULT_MAX_TOKENS, "messages": HI_SAID}
    assert translate(body) == least | expected


def test_stream_is_said() -> None:
    assert translate({}, stream=True)["stream"] is True


REFUSED: list[tuple[Json, str]] = [
    ({"n": 2}, "n"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"messages": []}, "messages"),
    ({"messages": 7}, "messages"),
    ({"messages": [7]}, "messages[0]"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    (ask({"type": "hologram"}), "messages[0].content[0].type"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///x"}}]}]},
        "messages[0].content[0]",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
        "messages[0].content[0].file",
    ),
    (
        {
            "messages": [
                {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}
            ]
        },
        "messages",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": "UklG"}]}]},
        "messages[0].content[0].type",
    ),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools"),
    ({"response_format": {"type": "yaml"}}, "response_format"),
]


@pytest.mark.parametrize(("body", "param"), REFUSED)
def test_what_cannot_be_said_is_refused_by_name(body: Json, param: str) -> None:
    with pytest.raises(UpstreamRejected) as caught:
        translate(body)
    assert json.loads(caught.value.body)["error"]["param"] == param
    assert caught.value.status == 400


def test_a_call_without_arguments_or_with_some_cut_off_has_none() -> None:
    """A call that was cut off stays in the conversation, and each later request was a 400."""
    said = ("null", "", "{}", '{"path": "a', "[]", '"text"', '{"a": "\\ud800"}')
    calls = [{"id": "c", "function": {"name": "f", "arguments": one}} for one in said]
    [turn] = parse_chat(json.dumps({"messages": [{"role": "assistant", "tool_calls": calls}]}).encode()).turns
    assert [part.arguments for part in turn.parts if isinstance(part, ToolCall)] == [{}] * len(said)


@pytest.mark.parametrize(
    "name",
    ["seed", "logit_bias", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs", "store", "verbosity"],
)
def test_what_only_tunes_the_answer_is_dropped(name: str) -> None:
    assert translate({name: 1}) == translate({})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"temperature": 1.5}, {"temperature": 1}),
        ({"temperature": 0.5, "top_p": 1}, {"temperature": 0.5}),
        ({"temperature": 1, "top_p": 0.5}, {"top_p": 0.5}),
        ({"temperature": 1, "top_p": 1}, {"top_p": 1}),
        ({"temperature": 0.5, "top_p": 0.5}, {"temperature": 0.5}),
    ],
)
def test_of_temperature_and_top_p_only_what_changes_something_is_said(given: Json, said: Json) -> None:
    assert {name: value for name, value in translate(given).items() if name in ("temperature", "top_p")} == said
    assert translate({"temperature": 0.5, "top_p": 0.5}, model="deepseek-v4")["top_p"] == 0.5


def nested(depth: int) -> Json:
    schema: Json = {"type": "string"}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def test_a_schema_of_an_answer_that_anthropic_cannot_hold_is_for_another_model() -> None:
    form: Json = {
        "type": "json_schema",
        "json_schema": {"name": "s", "schema": {"type": "array", "items": {"type": "object"}}},
    }
    with pytest.raises(Untranslatable, match="response_format: has an object of any members"):
        translate({"response_format": form})


def test_a_strict_tool_whose_arguments_cannot_be_held_goes_without_the_promise() -> None:
    free: Json = {"type": "object", "properties": {"any": {"type": "object"}}}
    tool: Json = {"type": "function", "function": {"name": "f", "parameters": free, "strict": True}}
    assert translate({"tools": [tool]})["tools"] == [{"name": "f", "input_schema": free}]


@pytest.mark.parametrize("strict", [False, True])
def test_no_tool_has_alternatives_at_its_root(strict: bool) -> None:
    """Claude refuses every turn with one such tool (cantinarr #497)."""
    one, other = ({"type": "object", "properties": {name: {"type": "string"}}} for name in "ab")
    function = {"name": "f", "parameters": {"oneOf": [one, other]}, "strict": strict}
    [tool] = cast(list[Json], translate({"tools": [{"type": "function", "function": function}]})["tools"])
    schema = cast(Json, tool["input_schema"])
    assert list(cast(Json, schema["properties"])) == ["a", "b"]
    assert (schema["type"], schema.keys() & {"anyOf", "oneOf", "allOf"}) == ("object", set())


def test_a_schema_nested_too_deeply_is_refused() -> None:
    form: Json = {"type": "json_schema", "json_schema": {"name": "s", "schema": nested(400)}}
    raw = json.dumps({"messages": HI, "response_format": form}).encode()
    view, call = parse_chat(raw), Call("chat.completions", "claude-x", raw, False, "r-1")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(300)
    try:
        with pytest.raises(UpstreamRejected, match="nested too deeply"):
            build_messages_body(view, call)
    finally:
        sys.setrecursionlimit(limit)


def test_an_end_at_white_space_is_for_another_model() -> None:
    with pytest.raises(Untranslatable, match="stop: this model does not support stop sequences of white space only"):
        translate({"stop": ["END", "\n"]})


NEWER = "claude-sonnet-5-5"


def test_newer_models_have_room_for_what_they_think() -> None:
    assert translate({}, model=NEWER)["max_tokens"] == DEFAULT_WITH_THOUGHTS
    assert translate({"max_tokens": 9}, model=NEWER)["max_tokens"] == 9


def test_newer_models_are_not_told_how_to_draw_tokens() -> None:
    """They answer 400 to any sampling parameter but a temperature of 1, so every chat with `temperature: 0` failed."""
    assert translate({"temperature": 0, "top_p": 0.5}, model=NEWER).keys() == {"model", "max_tokens", "messages"}


def test_older_models_without_efforts_get_none() -> None:
    """They answer 400 to any, so every chat with an effort failed at Haiku 4.5 and Sonnet 4.5."""
    assert "output_config" not in translate({"reasoning_effort": "high"}, model="claude-haiku-4-5")


SUMMARISED: Json = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"type": "enabled", "budget_tokens": 2048}, SUMMARISED),
        ({"type": "enabled", "budget_tokens": 2048, "display": "omitted"}, SUMMARISED | {"display": "omitted"}),
        ({"type": "adaptive"}, {"type": "adaptive"}),
        ({"type": "disabled"}, {"type": "disabled"}),
        ({"type": "enabled", "keep": "all"}, SUMMARISED),
        ({"type": "disabled", "clear_thinking": False}, {"type": "disabled"}),
    ],
)
def test_newer_models_set_their_own_budget_for_thinking(asked: Json, told: Json) -> None:
    assert translate({"thinking": asked}, model=NEWER)["thinking"] == told


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"reasoning_effort": "high"}, SUMMARISED),
        ({"reasoning_effort": "none"}, None),
        ({}, None),
        ({"reasoning_effort": "high", "thinking": {"type": "odd"}}, None),
        ({"reasoning_effort": "high", "tools": [TOOL], "tool_choice": "required"}, None),
        ({"reasoning_effort": "high", "tools": [TOOL], "tool_choice": "auto"}, SUMMARISED),
    ],
)
def test_newer_models_say_what_they_thought_to_who_asks_for_an_effort(asked: Json, told: Json | None) -> None:
    """By default they omit it, and Opus 4.7 and 4.8 do not reason at all."""
    assert translate(asked, model=NEWER).get("thinking") == told


@pytest.mark.parametrize(
    ("model", "asked", "budget"),
    [
        ("claude-haiku-4-5", {"reasoning_effort": "low"}, 1_024),
        ("claude-sonnet-4-20250514", {"reasoning_effort": "medium"}, 4_096),
        ("claude-3-7-sonnet-latest", {"reasoning_effort": "xhigh"}, 16_384),
        ("claude-opus-4-5", {"reasoning_effort": "high", "max_tokens": 6_000}, 3_000),
        ("claude-haiku-4-5", {"reasoning_effort": "high", "max_tokens": 2_000}, None),
        ("claude-haiku-4-5", {"reasoning_effort": "minimal"}, None),
        ("claude-haiku-4-5", {"reasoning_effort": "high", "thinking": {"type": "disabled"}}, None),
        ("claude-haiku-4-5", {"reasoning_effort": "high", "tools": [TOOL]}, None),
        ("claude-3-5-haiku-latest", {"reasoning_effort": "high"}, None),
        ("deepseek-chat", {"reasoning_effort": "high"}, None),
    ],
)
def test_models_that_think_with_a_budget_alone_get_one_for_an_effort(
    model: str, asked: Json, budget: int | None
) -> None:
    """They did not think at all, whatever effort was asked."""
    said = translate({"temperature": 0.5} | asked, model=model)
    thinks = {"type": "enabled", "budget_tokens": budget} if budget else asked.get("thinking")
    assert said.get("thinking") == thinks
    assert said["max_tokens"] == asked.get("max_tokens", DEFAULT_MAX_TOKENS + (budget or 0))
    assert ("temperature" in said) == (budget is None), "a Claude that thinks takes none"


@pytest.mark.parametrize(
    "last",
    [
        {"messages": [*HI, {"role": "assistant", "content": "{"}]},
        {"tools": [TOOL], "tool_choice": "required"},
    ],
)
def test_an_effort_asks_for_no_thinking_that_would_be_refused(last: Json) -> None:
    for model in (OLDER, "claude-haiku-4-5"):
        assert "thinking" not in translate({"reasoning_effort": "high"} | last, model=model)
