"""Chat bodies in Anthropic's words: what is said, what is dropped and what is refused."""

import json
import sys
from typing import cast

import pytest

from backends.errors import Untranslatable, UpstreamRejected
from backends.formats.anthropic_request import DEFAULT_MAX_TOKENS, DEFAULT_WITH_THOUGHTS, build_messages_body
from backends.formats.call_ids import for_anthropic
from backends.formats.chat_view import parse_chat
from backends.protocol import Call

Json = dict[str, object]
OLDER = "claude-sonnet-4-6"
HI = [{"role": "user", "content": "hi"}]
HI_SAID = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
PNG = "data:image/png;base64,iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
CLOSED = SCHEMA | {"additionalProperties": False}


def translate(body: Json, *, stream: bool = False, model: str = OLDER) -> Json:
    raw = json.dumps({"messages": HI} | body).encode()
    call = Call("chat.completions", model, raw, stream, "r-1")
    return cast(Json, json.loads(build_messages_body(parse_chat(raw), call)))


def test_the_least_body() -> None:
    assert translate({}) == {"model": OLDER, "max_tokens": DEFAULT_MAX_TOKENS, "messages": HI_SAID}


TOOL: Json = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}}
CALL: Json = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
FIELDS: list[tuple[Json, Json]] = [
    ({"max_tokens": 5}, {"max_tokens": 5}),
    ({"max_completion_tokens": 6, "max_tokens": 5}, {"max_tokens": 6}),
    ({"temperature": 1.7, "top_p": 0.5}, {"temperature": 1, "top_p": 0.5}),
    ({"temperature": 0}, {"temperature": 0}),
    ({"stop": "x"}, {"stop_sequences": ["x"]}),
    ({"stop": ["x", "y"]}, {"stop_sequences": ["x", "y"]}),
    ({"user": "u1"}, {"metadata": {"user_id": "u1"}}),
    ({"service_tier": "default"}, {"service_tier": "standard_only"}),
    ({"reasoning_effort": "high"}, {"output_config": {"effort": "high"}}),
    ({"thinking": {"type": "adaptive"}}, {"thinking": {"type": "adaptive"}}),
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
    ({"user": "u"}, {"metadata": {"user_id": "u"}}),
    ({"user": "u", "safety_identifier": "s"}, {"metadata": {"user_id": "s"}}),
    ({"thinking": {"type": "adaptive"}}, {"thinking": {"type": "adaptive"}}),
    ({"thinking": {"type": "enabled"}}, {}),
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


@pytest.mark.parametrize(("body", "expected"), FIELDS)
def test_fields(body: Json, expected: Json) -> None:
    least = {"model": OLDER, "max_tokens": DEFAULT_MAX_TOKENS, "messages": HI_SAID}
    assert translate(body) == least | expected


def test_instructions_are_asked_as_a_users_where_the_user_says_nothing() -> None:
    system: Json = {"role": "system", "content": "Write."}
    for messages in ([system], [system, {"role": "user", "content": ""}]):
        assert translate({"messages": messages})["messages"] == [
            {"role": "user", "content": [{"type": "text", "text": "Write."}]}
        ]


def test_stream_is_said() -> None:
    assert translate({}, stream=True)["stream"] is True


def test_a_conversation_with_tools_and_media() -> None:
    cached = {"type": "text", "text": "long", "cache_control": {"type": "ephemeral"}}
    messages: list[Json] = [
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": [cached]},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": PNG}},
                {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": [CALL, CALL | {"id": "c2"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "2"}]},
        {"role": "user", "content": "and?"},
    ]
    said = translate({"messages": messages})
    assert said["system"] == [{"type": "text", "text": "be brief"}, cached]
    used = {"type": "tool_use", "name": "f", "input": {"a": 1}}
    result = {"type": "tool_result"}
    assert said["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
                {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
                    "title": "a.pdf",
                },
            ],
        },
        {"role": "assistant", "content": [used | {"id": "c1"}, used | {"id": "c2"}]},
        {
            "role": "user",
            "content": [
                result | {"tool_use_id": "c1", "content": [{"type": "text", "text": "1"}]},
                result | {"tool_use_id": "c2", "content": [{"type": "text", "text": "2"}]},
                {"type": "text", "text": "and?"},
            ],
        },
    ]


def ask(*parts: Json) -> Json:
    return {"messages": [{"role": "user", "content": list(parts)}]}


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
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{"}}]}]},
        "messages[0].tool_calls[0].function.arguments",
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
        ({"temperature": 0.5, "top_p": 0.5}, {"temperature": 0.5, "top_p": 0.5}),
    ],
)
def test_of_temperature_and_top_p_only_what_changes_something_is_said(given: Json, said: Json) -> None:
    assert {name: value for name, value in translate(given).items() if name in ("temperature", "top_p")} == said


def test_a_text_file_is_said_as_text() -> None:
    file: Json = {"type": "file", "file": {"filename": "a.md", "file_data": "data:text/markdown;base64,aMOp"}}
    source = {"type": "text", "media_type": "text/plain", "data": "hé"}
    message = cast(list[Json], translate(ask(file))["messages"])[0]
    assert message["content"] == [{"type": "document", "source": source, "title": "a.md"}]
    broken: Json = {"type": "file", "file": {"filename": "a.md", "file_data": "data:text/plain;base64,/w=="}}
    with pytest.raises(UpstreamRejected, match="UTF-8"):
        translate(ask(broken))


MARK: Json = {"cache_control": {"type": "ephemeral"}}


def marks_in(messages: list[Json], tools: list[Json]) -> list[object]:
    """Which blocks are marked: those of the system, of each message, and the tools."""
    said = translate({"messages": messages, "tools": tools})
    turns = cast(list[Json], said["messages"])
    blocks = [said["system"], *(turn["content"] for turn in turns), said.get("tools", [])]
    return [["cache_control" in block for block in cast(list[Json], row)] for row in blocks]


def test_a_mark_on_a_message_a_call_or_a_tool_is_on_what_it_became() -> None:
    system: Json = {"role": "system", "content": "long"}
    user: Json = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    calls: Json = {"role": "assistant", "content": "I look.", "tool_calls": [CALL, CALL | {"id": "c2"}]}
    results: list[Json] = [{"role": "tool", "tool_call_id": name, "content": "1"} for name in ("c1", "c2")]
    plain = [system, user, calls, *results]
    assert marks_in(plain, [TOOL]) == [[False], [False] * 2, [False] * 3, [False] * 2, [False]]

    on_messages = [message | MARK for message in (system, user, calls, *results)]
    marked = [[True], [False, True], [False, False, True], [True, True], [True]]
    assert marks_in(on_messages, [TOOL | MARK]) == marked
    inside: Json = TOOL | {"function": cast(Json, TOOL["function"]) | MARK}
    assert marks_in([system, user], [inside])[-1] == [True]
    on_a_call = calls | {"tool_calls": [CALL | MARK, CALL | {"id": "c2"}]}
    assert marks_in([system, user, on_a_call, *results], [])[2] == [False, True, False]


def test_a_mark_inside_a_tools_result_is_on_the_result() -> None:
    content: list[Json] = [{"type": "text", "text": "1"}, {"type": "text", "text": "2"} | MARK]
    result: Json = {"role": "tool", "tool_call_id": "c1", "content": content}
    messages = cast(
        list[Json], translate({"messages": [*HI, {"role": "assistant", "tool_calls": [CALL]}, result]})["messages"]
    )
    plain = [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]
    assert messages[-1]["content"] == [{"type": "tool_result", "tool_use_id": "c1", "content": plain} | MARK]


def test_a_message_marked_twice_keeps_the_mark_of_its_part() -> None:
    part: Json = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    assert translate({"messages": [{"role": "user", "content": [part]} | MARK]})["messages"] == [
        {"role": "user", "content": [part]}
    ]
    assert translate({"messages": [{"role": "system", "content": ""} | MARK, *HI]}) == translate({})


def test_a_call_of_kimis_gets_an_id_that_anthropic_takes() -> None:
    messages = [*HI, {"role": "assistant", "tool_calls": [CALL | {"id": "functions.f:0"}]}]
    body = translate({"messages": [*messages, {"role": "tool", "tool_call_id": "functions.f:0", "content": "1"}]})
    [_, asked, answered] = cast(list[dict[str, list[Json]]], body["messages"])
    assert asked["content"][0]["id"] == answered["content"][0]["tool_use_id"] == for_anthropic("functions.f:0")


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


ASKED: Json = {"role": "user", "content": "hi"}


def said(text: str) -> Json:
    return {"type": "text", "text": text}


def test_white_space_that_anthropic_refuses_is_left_out() -> None:
    messages: list[Json] = [
        {"role": "system", "content": [said(" "), said("be brief")]},
        ASKED,
        {"role": "assistant", "content": "\n\n", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "\n"},
        {"role": "assistant", "content": "\n"},
        {"role": "assistant", "content": "Sure: \n"},
    ]
    assert translate({"messages": messages}) == {
        "model": OLDER,
        "max_tokens": DEFAULT_MAX_TOKENS,
        "system": [said("be brief")],
        "messages": [
            *HI_SAID,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": []}]},
            {"role": "assistant", "content": [said("Sure:")]},
        ],
    }


def test_results_come_before_what_the_user_says_between_them() -> None:
    messages: list[Json] = [
        ASKED,
        {"role": "assistant", "tool_calls": [CALL, CALL | {"id": "c2"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "user", "content": "wait"},
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
    ]
    last = cast(list[dict[str, list[Json]]], translate({"messages": messages})["messages"])[-1]
    kinds = [block.get("tool_use_id") or block["text"] for block in last["content"]]
    assert kinds == ["c1", "c2", "wait"]


def test_a_jpg_is_a_jpeg() -> None:
    image: Json = {"type": "image_url", "image_url": {"url": "data:image/jpg;base64,/9j/4AAQ"}}
    [message] = cast(
        list[dict[str, list[Json]]], translate({"messages": [{"role": "user", "content": [image]}]})["messages"]
    )
    assert message["content"][0]["source"] == {"type": "base64", "media_type": "image/jpeg", "data": "/9j/4AAQ"}


def test_an_end_at_white_space_is_for_another_model() -> None:
    with pytest.raises(Untranslatable, match="stop: this model cannot end at white space alone"):
        translate({"stop": ["END", "\n"]})


NEWER = "claude-sonnet-5-5"


def test_newer_models_have_room_for_what_they_think() -> None:
    assert translate({}, model=NEWER)["max_tokens"] == DEFAULT_WITH_THOUGHTS
    assert translate({"max_tokens": 9}, model=NEWER)["max_tokens"] == 9


def test_newer_models_are_not_told_how_to_draw_tokens() -> None:
    """They answer 400 to any of it but a temperature of 1: every chat with `temperature: 0` failed at them."""
    assert translate({"temperature": 0, "top_p": 0.5}, model=NEWER).keys() == {"model", "max_tokens", "messages"}


SUMMARISED: Json = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"type": "enabled", "budget_tokens": 2048}, SUMMARISED),
        ({"type": "enabled", "budget_tokens": 2048, "display": "omitted"}, SUMMARISED | {"display": "omitted"}),
        ({"type": "adaptive"}, {"type": "adaptive"}),
        ({"type": "disabled"}, {"type": "disabled"}),
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
    """They leave it out unless asked to, and Opus 4.7 and 4.8 do not think at all."""
    assert translate(asked, model=NEWER).get("thinking") == told
    assert "thinking" not in translate({"reasoning_effort": "high"})
