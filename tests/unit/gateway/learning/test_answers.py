"""An answer's text and tool calls are read alike from every format, whole and streamed."""

import json
from typing import Any

import pytest

from gateway.learning.answers import Answer, read_answer
from tests.unit.gateway.learning.answer_bodies import answer, message, message_stream, streamed

ADD = Answer("Let me see.", (("add", '{"a": 2}'), ("stop", "")))


def events(*found: dict[str, Any]) -> bytes:
    return "".join(f"data: {json.dumps(one)}\n\n" for one in found).encode()


def choice(message: dict[str, Any]) -> bytes:
    return json.dumps({"choices": [{"message": message}]}).encode()


def deltas(*found: dict[str, Any]) -> bytes:
    return events(*({"choices": [{"delta": one}]} for one in found))


def function(index: int | None, **given: str) -> dict[str, Any]:
    return {**({} if index is None else {"index": index}), "function": given}


def block(kind: str, index: int, **given: Any) -> dict[str, Any]:
    name = "content_block" if kind == "content_block_start" else "delta"
    return {"type": kind, "index": index, name: given}


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (answer("Paris"), Answer("Paris")),
        (streamed("Par", "is"), Answer("Paris")),
        (message("Par", "is"), Answer("Paris")),
        (message_stream("Par", "is"), Answer("Paris")),
        (
            choice(
                {
                    "content": "Let me see.",
                    "tool_calls": [function(None, name="add", arguments='{"a": 2}'), function(None, name="stop")],
                }
            ),
            ADD,
        ),
        (
            deltas(
                {"content": "Let me "},
                {"content": "see.", "tool_calls": [function(0, name="add", arguments="")]},
                {"tool_calls": [function(0, arguments='{"a": ')]},
                {"tool_calls": [function(0, arguments="2}"), function(1, name="stop")]},
            ),
            ADD,
        ),
        (
            json.dumps(
                {
                    "type": "message",
                    "content": [
                        {"type": "thinking", "thinking": "hm"},
                        {"type": "text", "text": "Let me see."},
                        {"type": "tool_use", "name": "add", "input": {"a": 2}},
                        {"type": "tool_use", "name": "stop", "input": {}},
                    ],
                }
            ).encode(),
            ADD,
        ),
        (
            events(
                block("content_block_start", 0, type="text", text=""),
                block("content_block_delta", 0, type="text_delta", text="Let me see."),
                block("content_block_start", 1, type="tool_use", name="add", input={}),
                block("content_block_delta", 1, type="input_json_delta", partial_json='{"a": '),
                block("content_block_delta", 1, type="input_json_delta", partial_json="2}"),
                block("content_block_start", 2, type="tool_use", name="stop", input={}),
            ),
            ADD,
        ),
        (choice({"function_call": {"name": "add", "arguments": "{}"}}), Answer("", (("add", "{}"),))),
        (b'{"error": {}}', None),
        (b"", None),
        (b"data: {", None),
    ],
)
def test_what_an_answer_says(payload: bytes, found: Answer | None) -> None:
    assert read_answer(payload) == found


def test_a_judge_sees_text_as_it_is_and_tool_calls_as_json() -> None:
    assert Answer("Paris").shown == "Paris"
    assert json.loads(ADD.shown) == {
        "text": "Let me see.",
        "tool_calls": [{"name": "add", "arguments": '{"a": 2}'}, {"name": "stop", "arguments": ""}],
    }
