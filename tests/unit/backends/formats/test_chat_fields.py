"""The fields of an OpenAI chat body other than its messages, checked before translation."""

import json
from typing import Any

import pytest

from backends.errors import UpstreamRejected
from backends.formats.chat_fields import Tool
from backends.formats.chat_view import ChatView, Media, Text, Turn, parse_chat

FUNCTION = {"name": "f", "parameters": {"type": "object"}}
TOOLS = [{"type": "function", "function": {**FUNCTION, "name": name}} for name in ("f", "g")]


def view(**fields: Any) -> ChatView:
    return parse_chat(json.dumps({"messages": [{"role": "user", "content": "hi"}], **fields}).encode())


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"temperature": "hot"}, "temperature", "invalid_value"),
        ({"temperature": True}, "temperature", "invalid_value"),
        ({"temperature": 2.1}, "temperature", "invalid_value"),
        ({"top_p": -0.1}, "top_p", "invalid_value"),
        ({"presence_penalty": 3}, "presence_penalty", "invalid_value"),
        ({"seed": 1.5}, "seed", "invalid_value"),
        ({"user": 7}, "user", "invalid_value"),
        ({"reasoning_effort": "huge"}, "reasoning_effort", "invalid_value"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls", "invalid_value"),
        ({"stop": 7}, "stop", "invalid_value"),
        ({"stop": ["a", 7]}, "stop", "invalid_value"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name", "invalid_value"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type", "unsupported_parameter"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "custom", "custom": {"name": "x"}}},
            "tool_choice",
            "unsupported_parameter",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "x"}}]}
                ]
            },
            "messages[0].tool_calls[0].type",
            "unsupported_parameter",
        ),
        (
            {"messages": [{"role": "assistant", "audio": {"id": "a"}}]},
            "messages[0].audio",
            "unsupported_parameter",
        ),
        ({"web_search_options": {}}, "web_search_options", "unsupported_parameter"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id", "invalid_value"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(UpstreamRejected) as refused:
        view(**fields)
    error = json.loads(refused.value.body)["error"]
    assert (refused.value.status, error["param"], error["code"]) == (400, param, code)


def test_null_is_as_if_it_were_not_there() -> None:
    names = ("temperature", "top_p", "seed", "user", "stop", "tools", "tool_choice", "n", "modalities", "max_tokens")
    said = view(**dict.fromkeys((*names, "function_call", "web_search_options", "response_format")))
    assert (said.tools, said.tool_choice, said.stop, said.max_output_tokens) == ((), None, (), None)


def test_an_empty_stop_sequence_ends_nothing() -> None:
    assert view(stop="").stop == ()
    assert view(stop=["", "END"]).stop == ("END",)


@pytest.mark.parametrize(
    ("called", "choice"), [("none", "none"), ("auto", "auto"), ({"name": "f"}, ("tool", "f")), (None, None)]
)
def test_functions_are_called_as_tools(called: object, choice: object) -> None:
    said = view(functions=[FUNCTION], function_call=called)
    assert said.tools == (Tool("f", None, {"type": "object"}, False),)
    assert said.tool_choice == choice


def test_a_choice_among_some_tools_leaves_the_others_out() -> None:
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "g"}}]}
    said = view(tools=TOOLS, tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert [tool.name for tool in said.tools] == ["g"]
    assert said.tool_choice == "required"


def test_a_tool_that_is_there_twice_is_told_once_and_another_of_its_name_is_the_models_to_refuse() -> None:
    first, second = TOOLS[0], TOOLS[1]
    other = {"type": "function", "function": {**FUNCTION, "name": "f", "description": "another"}}
    said = view(tools=[first, second, first, other]).tools
    assert [tool.name for tool in said] == ["f", "g", "f"]
    assert said[2].description == "another"
    mark = {"type": "ephemeral"}
    said = view(tools=[first, second, {**first, "cache_control": mark}]).tools
    assert [(tool.name, tool.cache_control) for tool in said] == [("f", None), ("g", mark)]


def test_an_empty_text_is_left_out() -> None:
    content = [{"type": "text", "text": ""}, {"type": "text", "text": "hi"}]
    assert view(messages=[{"role": "user", "content": content}]).turns == (Turn("user", (Text("hi"),)),)


def test_somebody_speaks_where_only_the_system_did() -> None:
    messages = [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}]
    assert view(messages=messages).turns == (Turn("system", (Text("a"),)), Turn("user", (Text("b"),)))


@pytest.mark.parametrize(
    ("file", "media"),
    [
        ({"file_data": "JVBERi0="}, Media("document", None, "application/pdf", "JVBERi0=")),
        (
            {"filename": "a.txt", "file_data": "aGk="},
            Media("document", None, "text/plain", "aGk=", "a.txt"),
        ),
        (
            {"filename": "a.png", "file_data": "data:image/png;base64,iVBO"},
            Media("image", None, "image/png", "iVBO", "a.png"),
        ),
    ],
)
def test_files_are_what_they_hold(file: dict[str, str], media: Media) -> None:
    (turn,) = view(messages=[{"role": "user", "content": [{"type": "file", "file": file}]}]).turns
    assert turn.parts == (media,)
