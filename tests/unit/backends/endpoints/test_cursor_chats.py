"""What Cursor 3 sends to its own base address, in LiteLLM's, Archestra's and others' recordings of it."""

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletionToolUnionParam
from pydantic import TypeAdapter

from backends.endpoints.cursor_chats import chat_from_cursor

Json = dict[str, Any]
TOOL: TypeAdapter[Any] = TypeAdapter(ChatCompletionToolUnionParam)
GRAMMAR = {"syntax": "lark", "definition": 'start: "ok"'}
PATCH: Json = {
    "type": "custom",
    "name": "ApplyPatch",
    "description": "Edits files.",
    "format": {"type": "grammar", **GRAMMAR},
}
READ: Json = {"name": "Read", "description": "Reads a file.", "parameters": {"type": "object", "properties": {}}}
PATCH_OF_CHAT: Json = {
    "type": "custom",
    "custom": {
        "name": "ApplyPatch",
        "description": "Edits files.",
        "format": {"type": "grammar", "grammar": GRAMMAR},
    },
}
READ_OF_CHAT: Json = {"type": "function", "function": READ}
ASKED: Json = {"role": "user", "content": "hi"}


def chat(**fields: Any) -> Json:
    return json.loads(chat_from_cursor(json.dumps({"model": "auto", **fields}).encode()))


def test_its_agent_asks_in_the_form_of_the_responses_api() -> None:
    made = chat(
        messages=[],
        input=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "zzz"},
            {"type": "custom_tool_call", "call_id": "c", "name": "ApplyPatch", "input": "*** Begin Patch"},
            {"type": "function_call", "call_id": "d", "name": "Read", "arguments": "{}"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "done"},
            {"type": "function_call_output", "call_id": "d", "output": "text"},
        ],
        tools=[PATCH, READ | {"type": "function"}],
        tool_choice={"type": "custom", "name": "ApplyPatch"},
        reasoning={"effort": "high", "summary": "auto"},
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
    )
    assert made["tools"] == [PATCH_OF_CHAT, READ_OF_CHAT]
    assert made["tool_choice"] == {"type": "custom", "custom": {"name": "ApplyPatch"}}
    assert (made["reasoning_effort"], made["stream_options"]) == ("high", {"include_usage": True})
    assert made["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "custom", "custom": {"name": "ApplyPatch", "input": "*** Begin Patch"}},
                {"id": "d", "type": "function", "function": {"name": "Read", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        {"role": "tool", "tool_call_id": "d", "content": "text"},
    ]


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (READ | {"type": "function"}, READ_OF_CHAT),
        (PATCH, PATCH_OF_CHAT),
        ({"type": "custom", "name": "f"}, {"type": "custom", "custom": {"name": "f"}}),
        (READ_OF_CHAT, READ_OF_CHAT),
        (PATCH_OF_CHAT, PATCH_OF_CHAT),
        ({"name": "Read", "description": "Reads a file.", "input_schema": READ["parameters"]}, READ_OF_CHAT),
        (
            {"type": "custom", "name": "Read", "description": "Reads a file.", "input_schema": READ["parameters"]},
            READ_OF_CHAT,
        ),
    ],
)
def test_its_tools_become_a_chats(tool: Json, expected: Json) -> None:
    [made] = chat(messages=[ASKED], tools=[tool])["tools"]
    assert made == expected
    assert TOOL.validate_python(made)


@pytest.mark.parametrize("tool", [None, "f", {"type": "web_search"}, {"type": ["function"]}])
def test_what_is_no_tool_of_a_chat_stays_for_its_provider_to_refuse(tool: object) -> None:
    assert chat(messages=[ASKED, 1], tools=[tool]) == {"model": "auto", "messages": [ASKED, 1], "tools": [tool]}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "function", "name": "Read"}, {"type": "function", "function": {"name": "Read"}}),
        ({"type": "custom", "name": "f"}, {"type": "custom", "custom": {"name": "f"}}),
        ({"type": "tool", "name": "Read"}, {"type": "function", "function": {"name": "Read"}}),
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ("auto", "auto"),
        ({"type": "function", "function": {"name": "Read"}}, {"type": "function", "function": {"name": "Read"}}),
    ],
)
def test_so_does_their_choice(choice: object, expected: object) -> None:
    assert chat(messages=[ASKED], tool_choice=choice)["tool_choice"] == expected


def test_claudes_blocks_become_calls_and_results() -> None:
    """It writes them for models whose names have `claude` in them."""
    call = {"type": "tool_use", "id": "t", "name": "Read", "input": {"path": "a"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "one"}]}
    said = {"type": "text", "text": "I look."}
    made = chat(
        messages=[
            ASKED,
            {"role": "assistant", "content": [said, call]},
            {"role": "user", "content": [result, {"type": "text", "text": "and?"}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]},
        ]
    )
    function = {"name": "Read", "arguments": '{"path":"a"}'}
    assert made["messages"] == [
        ASKED,
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"id": "t", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "t", "content": "one"},
        {"role": "user", "content": [{"type": "text", "text": "and?"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]},
    ]


def test_an_answer_of_calls_alone_has_no_empty_list() -> None:
    """OpenAI refuses it, and with it every turn after the first call."""
    calls = [{"id": "c", "type": "function", "function": {"name": "Read", "arguments": "{}"}}]
    [message] = chat(messages=[{"role": "assistant", "content": [], "tool_calls": calls}])["messages"]
    assert message == {"role": "assistant", "content": None, "tool_calls": calls}


@pytest.mark.parametrize("body", [b"", b"[]", b"{"])
def test_what_is_no_object_is_left_to_who_refuses_it(body: bytes) -> None:
    assert chat_from_cursor(body) == body
