"""Text and thinking of a chat message, wherever the provider puts them, and in both translations."""

import json
from typing import Any

import pytest

from backends.endpoints.messages_events import message_from_answer
from backends.endpoints.responses_events import response_from_answer
from backends.endpoints.responses_items import ResponseHead
from backends.formats.answer_parts import said_in

MISTRALS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}, {"type": "text", "text": "!"}]},
    {"type": "text", "text": "Par"},
    {"type": "text", "text": "is"},
]
DATABRICKS = [
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm!", "signature": ""}]},
    {"type": "text", "text": "Paris"},
]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "Paris"}, ("", "Paris")),
        ({"content": "Paris", "reasoning_content": "hm!"}, ("hm!", "Paris")),
        ({"content": "", "reasoning": "hm!"}, ("hm!", "")),
        ({"content": MISTRALS}, ("hm!", "Paris")),
        ({"content": DATABRICKS}, ("hm!", "Paris")),
        ({"content": None}, ("", "")),
        ({"content": ["Paris", 7, {"text": 7}, {"thinking": "hm!"}]}, ("", "")),
        ({}, ("", "")),
    ],
)
def test_thinking_and_text(message: dict[str, Any], expected: tuple[str, str]) -> None:
    assert said_in(message) == expected


def test_a_content_of_parts_is_said_again_in_messages_and_responses() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": MISTRALS}, "finish_reason": "stop"}
    body = json.dumps({"model": "m", "choices": [choice]}).encode()
    message = json.loads(message_from_answer(body, None, message_id="msg", model="m"))
    assert [(part["type"], part.get("thinking") or part.get("text")) for part in message["content"]] == [
        ("thinking", "hm!"),
        ("text", "Paris"),
    ]
    response = json.loads(response_from_answer(body, None, ResponseHead("resp", 7, {}), now=9))
    assert [item["content"][0]["text"] for item in response["output"]] == ["hm!", "Paris"]
