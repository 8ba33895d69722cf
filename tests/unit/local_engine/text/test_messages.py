"""Which conversations callers may send, and what a chat template then gets."""

from typing import Any

import pytest

from local_engine.errors import InvalidRequest
from local_engine.text.messages import plain_message


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}


@pytest.mark.parametrize(
    ("role", "seen"),
    [("system", "system"), ("developer", "system"), ("user", "user"), ("tool", "tool"), ("function", "tool")],
)
def test_roles_are_those_that_templates_know(role: str, seen: str) -> None:
    assert plain_message({"role": role, "content": "x", "name": "n"}, 0) == {"role": seen, "content": "x", "name": "n"}


@pytest.mark.parametrize(
    ("content", "text"),
    [("a", "a"), (None, ""), ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab")],
)
def test_content_is_one_string(content: Any, text: str) -> None:
    assert plain_message({"role": "user", "content": content}, 0)["content"] == text


@pytest.mark.parametrize(("content", "seen"), [(None, None), ("", None), ("a", "a"), ([], None)])
def test_calls_may_come_without_content(content: Any, seen: str | None) -> None:
    message = {"role": "assistant", "content": content, "tool_calls": [call("{}")]}
    assert plain_message(message, 0)["content"] == seen


@pytest.mark.parametrize("calls", [None, []])
def test_what_an_answer_did_not_have_is_not_there(calls: Any) -> None:
    """Clients send back complete answers; Llama's template tests for `tool_calls`, then counts them."""
    sent = {"role": "assistant", "content": "x", "tool_calls": calls, "refusal": None, "function_call": None}
    assert plain_message(sent, 0) == {"role": "assistant", "content": "x"}


@pytest.mark.parametrize("name", ["reasoning_content", "thinking", "reasoning"])
def test_reasoning_has_the_name_that_templates_read(name: str) -> None:
    plain = plain_message({"role": "assistant", "content": "x", name: "why"}, 0)
    assert plain["reasoning_content"] == "why"
    assert "reasoning_content" not in plain_message({"role": "assistant", "content": "x", name: None}, 0)


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ('{"x": 1}', {"x": 1}),
        ({"x": 1}, {"x": 1}),
        ("", {}),
        (None, {}),
        ("null", {}),
        ("[1]", [1]),
        ('"x"', {}),
        ('{"x": "cut of', {}),
        ('{"x": ' * 100_000, {}),
    ],
)
def test_arguments_of_earlier_calls_are_objects(sent: Any, seen: Any) -> None:
    """One call that was cut off used to be a 400 for every later turn of its conversation."""
    message = {"role": "assistant", "content": None, "tool_calls": [call(sent)]}
    assert plain_message(message, 0)["tool_calls"] == [call(seen)]
    assert message["tool_calls"] == [call(sent)], "the caller's own message stays as it was"


@pytest.mark.parametrize(
    ("message", "parameter", "words"),
    [
        ({"content": "x"}, "messages[2].role", "needs a role"),
        ({"role": 7, "content": "x"}, "messages[2].role", "needs a role"),
        (
            {"role": "wizard", "content": "x"},
            "messages[2].role",
            "'wizard' is not the role of a message; use one of system",
        ),
        ({"role": "user", "content": 7}, "messages[2].content", "a string or a list"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[2].content", "text only"),
        ({"role": "assistant", "tool_calls": "f"}, "messages[2].tool_calls", "list of calls"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "messages[2].tool_calls[0]", "function with a name"),
    ],
)
def test_anything_else_is_the_callers_error(message: dict[str, Any], parameter: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        plain_message(message, 2)
    assert caught.value.parameter == parameter
