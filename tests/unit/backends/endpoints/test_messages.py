"""Anthropic's Messages requests translated to chats."""

import json
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.endpoints.messages_format import chat_body_from_messages
from backends.errors import UpstreamRejected
from backends.formats.anthropic_request import build_messages_body
from backends.formats.chat_view import parse_chat
from backends.formats.schema_subset import for_openai
from backends.formats.user_ids import user_of_chat
from backends.protocol import Call

Json = dict[str, object]
LEAST: Json = {"model": "auto", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
LOOSE = {"type": "object", "properties": {"a": {"type": "integer"}}}
BARE: Json = {"type": "object", "$defs": {"A": {"type": "array"}}}
SCHEMA = LOOSE | {"required": ["a"], "additionalProperties": False}
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}


def translate(body: Json, *, keeps_cache_marks: bool = False) -> Json:
    sent = json.dumps(LEAST | body).encode()
    return cast(Json, json.loads(chat_body_from_messages(sent, keeps_cache_marks=keeps_cache_marks)))


FIELDS: list[tuple[Json, Json]] = [
    ({}, {}),
    ({"temperature": 0, "top_p": 0.5}, {"temperature": 0, "top_p": 0.5}),
    ({"stop_sequences": ["x"]}, {"stop": ["x"]}),
    ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
    ({"metadata": {"user_id": "u"}}, {"user": "u"}),
    ({"metadata": {"user_id": "u" * 150}}, {"user": user_of_chat("u" * 150)}),
    (
        {"tools": [{"name": "f", "description": "d", "input_schema": SCHEMA, "strict": True}]},
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "parameters": SCHEMA, "description": "d", "strict": True},
                }
            ]
        },
    ),
    (
        {"tools": [{"name": "f", "input_schema": BARE}]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": for_openai(BARE)}}]},
    ),
    ({"tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
    (
        {"tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True}},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": False},
    ),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
            }
        },
    ),
    (
        {
            "tools": [{"name": "f", "input_schema": LOOSE, "strict": True}],
            "output_config": {"format": {"type": "json_schema", "schema": LOOSE}},
        },
        {
            "tools": [{"type": "function", "function": {"name": "f", "parameters": LOOSE}}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": LOOSE, "strict": False},
            },
        },
    ),
    ({"top_k": 3, "thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}, "service_tier": "auto"}, {}),
    ({"service_tier": "priority"}, {"service_tier": "priority"}),
    ({"service_tier": {}}, {}),
]


@pytest.mark.parametrize(("body", "expected"), FIELDS)
def test_fields(body: Json, expected: Json) -> None:
    assert translate(body) == LEAST | expected


@pytest.mark.parametrize(
    ("body", "effort"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1_024}}, "low"),
        ({"thinking": {"type": "enabled", "budget_tokens": 31_999}}, "high"),
        ({"thinking": {"type": "enabled", "budget_tokens": 31_999}, "output_config": {"effort": "max"}}, "xhigh"),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"thinking": {"type": "disabled"}}, None),
    ],
)
def test_a_budget_for_thinking_is_an_effort_where_none_is_named(body: Json, effort: str | None) -> None:
    chat = json.loads(chat_body_from_messages(json.dumps(LEAST | body).encode(), reasons=True))
    assert chat.get("reasoning_effort") == effort


CONVERSATION: Json = {
    "system": [{"type": "text", "text": "be brief"} | EPHEMERAL],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"} | EPHEMERAL,
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
                {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                {
                    "type": "document",
                    "title": "a.pdf",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I see."},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "one"}]},
                {"type": "text", "text": "and?"},
            ],
        },
    ],
}


MARKED: Json = {
    "system": [{"type": "text", "text": "be brief"} | EPHEMERAL],
    "tools": [{"name": "f", "input_schema": SCHEMA} | EPHEMERAL],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "go"} | EPHEMERAL]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "one"} | EPHEMERAL]},
    ],
}


def test_cache_marks_go_to_those_alone_who_know_them() -> None:
    without = json.loads(json.dumps(MARKED).replace(', "cache_control": {"type": "ephemeral"}', ""))
    assert translate(MARKED) == translate(without)
    kept = cast(dict[str, list[Json]], translate(MARKED, keeps_cache_marks=True))
    assert kept["tools"][0]["cache_control"] == EPHEMERAL["cache_control"]
    assert [message["content"] for message in kept["messages"]] == [
        [{"type": "text", "text": "be brief"} | EPHEMERAL],
        [{"type": "text", "text": "go"} | EPHEMERAL],
        None,
        [{"type": "text", "text": "one"} | EPHEMERAL],
    ]


def test_a_conversation() -> None:
    assert translate(CONVERSATION, keeps_cache_marks=True)["messages"] == [
        {"role": "system", "content": [{"type": "text", "text": "be brief"} | EPHEMERAL]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"} | EPHEMERAL,
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
                {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
            ],
        },
        {
            "role": "assistant",
            "content": "I see.",
            "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "one"},
        {"role": "user", "content": [{"type": "text", "text": "and?"}]},
    ]


def test_there_and_back_loses_only_the_thinking() -> None:
    raw = chat_body_from_messages(json.dumps(LEAST | CONVERSATION).encode(), keeps_cache_marks=True)
    call = Call("chat.completions", "auto", raw, False, "r-1")
    again = json.loads(build_messages_body(parse_chat(raw), call))
    expected = json.loads(json.dumps(LEAST | CONVERSATION))
    expected["messages"][1]["content"].pop(0)
    assert again == expected


def test_a_failed_tool_and_its_image() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
    result = {
        "type": "tool_result",
        "tool_use_id": "t",
        "is_error": True,
        "content": [{"type": "text", "text": "no"}, image],
    }
    assert translate({"messages": [{"role": "user", "content": [result]}]})["messages"] == [
        {"role": "tool", "tool_call_id": "t", "content": "Error: no"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]},
    ]


def test_what_a_search_for_tools_found_can_be_called() -> None:
    """Claude Code's ToolSearch answers so, and its answer stays in the conversation."""
    found = [{"type": "tool_reference", "tool_name": name} for name in ("Read", "mcp__github__list_issues")]
    result = {"type": "tool_result", "tool_use_id": "t", "content": found}
    [message] = cast(list[Json], translate({"messages": [{"role": "user", "content": [result]}]})["messages"])
    told = "The tool Read can be called.\nThe tool mcp__github__list_issues can be called."
    assert message == {"role": "tool", "tool_call_id": "t", "content": told}


BILLING = "x-anthropic-billing-header: cc_version=2.1; cch=e1a6;"
BRIEF: Json = {"type": "text", "text": "be brief"}


@pytest.mark.parametrize(
    ("system", "content"),
    [
        (f"{BILLING}\nbe brief", "be brief"),
        (
            [{"type": "text", "text": BILLING}, {"type": "text", "text": "be brief"}],
            [{"type": "text", "text": "be brief"}],
        ),
        ([{"type": "text", "text": f"{BILLING}\nbe brief"}], [BRIEF]),
        (f"be brief\n{BILLING}", f"be brief\n{BILLING}"),
        (BILLING, None),
        ("", None),
    ],
)
def test_a_line_for_anthropics_billing_stands_in_nobody_elses_prompt(system: object, content: object) -> None:
    """It differs in every request, at the very beginning, so no prefix cache could match anything."""
    said = cast(list[Json], translate({"system": system})["messages"])
    assert [one["content"] for one in said if one["role"] == "system"] == ([content] if content else [])


ANY = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "tool_use", "tool_result", "thinking", "document"])},
    optional={"text": ANY, "source": ANY, "id": ANY, "name": ANY, "input": ANY, "content": ANY},
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": ANY | st.lists(BLOCK | ANY, max_size=3)}
)
BODY = st.fixed_dictionaries(
    {"messages": ANY | st.lists(MESSAGE | ANY, max_size=3)},
    optional={
        "system": ANY | st.lists(BLOCK, max_size=2),
        "tools": ANY | st.lists(BLOCK | ANY, max_size=2),
        "tool_choice": ANY,
        "metadata": ANY,
        "output_config": ANY,
        "stop_sequences": ANY,
    },
)


@settings(max_examples=55, deadline=None)
@given(BODY)
def test_any_body_is_translated_or_refused(body: Json) -> None:
    try:
        said = translate(body)
    except UpstreamRejected:
        return
    assert isinstance(said["messages"], list)


def test_the_tools_are_those_that_messages_leave() -> None:
    def change(kind: str, **tool: object) -> Json:
        return {"role": "system", "content": [{"type": f"tool_{kind}", "tool": tool}]}

    def named(name: str, text: str = "") -> Json:
        return {"name": name, "description": text, "input_schema": {"type": "object"}}

    changes = [
        change("addition", type="tool_definition", definition=named("c")),
        change("removal", type="tool_reference", name="a"),
        change("removal", type="tool_reference", name="b"),
        change("addition", type="tool_reference", name="b"),
        change("addition", type="tool_reference", name="unheard of"),
        change("addition", type="tool_definition", definition=named("c", "anew")),
    ]
    asked = {"model": "m", "max_tokens": 9, "tools": [named("a"), named("b")]}
    body = asked | {"messages": [{"role": "user", "content": "hi"}, *changes]}
    chat = json.loads(chat_body_from_messages(json.dumps(body).encode()))
    assert [(one["function"]["name"], one["function"]["description"]) for one in chat["tools"]] == [
        ("b", ""),
        ("c", "anew"),
    ]
    assert [one["role"] for one in chat["messages"]] == ["user"]


def test_search_results_and_documents_of_blocks_are_said_as_text() -> None:
    text = [{"type": "text", "text": "Paris is "}, {"type": "text", "text": "in France."}]
    blocks = [
        {"type": "search_result", "source": "https://x/y", "title": "Paris", "content": text},
        {"type": "document", "source": {"type": "content", "content": text}},
        {
            "type": "document",
            "title": "A letter",
            "context": "It was never sent.",
            "source": {"type": "text", "media_type": "text/plain", "data": "Dear all,"},
        },
    ]
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": blocks}]}
    (message,) = json.loads(chat_body_from_messages(json.dumps(asked).encode()))["messages"]
    assert [part["text"] for part in message["content"]] == [
        "Paris\nhttps://x/y\nParis is in France.",
        "Paris is in France.",
        "It was never sent.",
        "A letter\nDear all,",
    ]


SAID: Json = {"role": "assistant", "content": "The capital is"}
CALLED: Json = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}
THOUGHT: Json = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}
ASKED: Json = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("messages", "goes_on"),
    [
        ([ASKED, SAID], True),
        ([ASKED, {"role": "assistant", "content": [{"type": "text", "text": "The"}]}], True),
        ([ASKED], False),
        ([ASKED, SAID, ASKED], False),
        ([ASKED, CALLED], False),
        ([ASKED, THOUGHT], False),
        ([ASKED, {"role": "assistant", "content": ""}], False),
    ],
)
def test_an_answer_goes_on_inside_the_assistants_last_message_where_that_can_be_said(
    messages: list[Json], goes_on: bool
) -> None:
    body = json.dumps(LEAST | {"messages": messages}).encode()
    plain = json.loads(chat_body_from_messages(body))
    wish = {"continue_final_message": True, "add_generation_prompt": False} if goes_on else {}
    assert json.loads(chat_body_from_messages(body, continues_last=True)) == plain | wish
