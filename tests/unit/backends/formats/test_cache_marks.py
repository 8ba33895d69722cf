"""Where a translated prompt gets cache marks, and that nothing else changes."""

import json
from typing import Any, Literal

import pytest

from backends.formats.anthropic_request import build_messages_body
from backends.formats.chat_view import parse_chat
from backends.protocol import Call

Marks = Literal["", "beginning", "conversation"]
MARK = {"type": "ephemeral"}
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
SYSTEM = {"role": "system", "content": "be brief"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
FIRST = [SYSTEM, {"role": "user", "content": "one"}]
CALLED = [*FIRST, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c", "content": "1"}]


def body(messages: list[Any], marks: Marks, **fields: Any) -> dict[str, Any]:
    raw = json.dumps({"messages": messages, **fields}).encode()
    call = Call("chat.completions", "claude-x", raw, False, "r-1", cache_marks=marks)
    return json.loads(build_messages_body(parse_chat(raw), call))


def marked(found: Any, at: str = "") -> list[str]:
    """Removes the marks and returns their places."""
    if isinstance(found, list):
        return [one for number, item in enumerate(found) for one in marked(item, f"{at}.{number}")]
    if not isinstance(found, dict):
        return []
    here = [at[1:]] if found.pop("cache_control", None) == MARK else []
    return here + [one for name, item in found.items() for one in marked(item, f"{at}.{name}")]


@pytest.mark.parametrize(
    ("messages", "marks", "fields", "places"),
    [
        (FIRST, "", {"tools": TOOLS}, []),
        (FIRST, "beginning", {}, ["system.0"]),
        (FIRST, "beginning", {"tools": TOOLS}, ["system.0", "tools.1"]),
        (FIRST, "conversation", {"tools": TOOLS}, ["messages.0.content.0", "system.0", "tools.1"]),
        (FIRST[1:], "beginning", {}, []),
        (
            CALLED,
            "conversation",
            {"tools": TOOLS},
            ["messages.0.content.0", "messages.2.content.0", "system.0", "tools.1"],
        ),
        (
            [*CALLED, {"role": "user", "content": "go on"}],
            "conversation",
            {},
            ["messages.0.content.0", "messages.2.content.1", "system.0"],
        ),
        (FIRST, "conversation", {"response_format": {"type": "json_object"}}, ["messages.0.content.0", "system.1"]),
        ([*CALLED, {"role": "system", "content": "now"}], "conversation", {"tools": TOOLS}, ["system.0", "tools.1"]),
        (
            [*CALLED, {"role": "assistant", "content": "So"}],
            "conversation",
            {},
            ["messages.0.content.0", "messages.2.content.0", "system.0"],
        ),
    ],
)
def test_where_marks_stand(messages: list[Any], marks: Marks, fields: dict[str, Any], places: list[str]) -> None:
    found = body(messages, marks, **fields)
    assert sorted(marked(found)) == places
    assert found == body(messages, "", **fields)


@pytest.mark.parametrize(
    ("messages", "fields"),
    [
        ([{**SYSTEM, "cache_control": MARK}, *FIRST[1:]], {}),
        ([{**SYSTEM, "content": [{"type": "text", "text": "s", "cache_control": MARK}]}, *FIRST[1:]], {}),
        (FIRST, {"tools": [{**TOOLS[0], "cache_control": MARK}, TOOLS[1]]}),
        (FIRST, {"cache_control": MARK}),
        ([*CALLED[:-1], {**CALLED[-1], "cache_control": {"type": "ephemeral", "ttl": "1h"}}], {}),
    ],
)
def test_a_prompt_with_marks_of_its_own_stays_as_it_is(messages: list[Any], fields: dict[str, Any]) -> None:
    assert body(messages, "conversation", **fields) == body(messages, "", **fields)


def test_text_that_speaks_of_marks_is_no_mark() -> None:
    assert marked(body([{"role": "user", "content": '"cache_control"'}], "conversation")) == ["messages.0.content.0"]
