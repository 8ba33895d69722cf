"""The Responses API in front of a chat backend: translated requests."""

import json
from typing import Any

import pytest

from backends.endpoints.responses_format import chat_body_from_responses
from backends.errors import Untranslatable, UpstreamRejected
from backends.openai_compatible import OPENAI_PATHS, OpenAICompatibleBackend
from backends.protocol import Call
from backends.translating import TranslatingBackend

FUNCTION = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}


def chat(**fields: Any) -> dict[str, Any]:
    return json.loads(chat_body_from_responses(json.dumps({"model": "m", "input": "hi", **fields}).encode()))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"instructions": "Brief."}, {"role": "system", "content": "Brief."}),
        ({"input": [{"role": "developer", "content": "Brief."}]}, {"role": "system", "content": "Brief."}),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]},
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x/i.png"}]}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/i.png"}}]},
        ),
        (
            {"input": [{"role": "assistant", "content": [{"type": "output_text", "text": "a"}]}]},
            {"role": "assistant", "content": "a"},
        ),
        (
            {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
        ),
        (
            {"input": [{"type": "function_call_output", "call_id": "c", "output": "sunny"}]},
            {"role": "tool", "tool_call_id": "c", "content": "sunny"},
        ),
        (
            {
                "input": [
                    {
                        "type": "agent_message",
                        "author": "/root",
                        "recipient": "/root/worker",
                        "content": [
                            {"type": "input_text", "text": "Payload:\n"},
                            {"type": "encrypted_content", "encrypted_content": "Count the files."},
                        ],
                    }
                ]
            },
            {
                "role": "user",
                "content": [{"type": "text", "text": "Payload:\n"}, {"type": "text", "text": "Count the files."}],
            },
        ),
        (
            {"input": [{"type": "reasoning", "summary": []}, {"role": "user", "content": "a"}]},
            {"role": "user", "content": "a"},
        ),
    ],
)
def test_each_kind_of_item_becomes_a_message(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert chat(**given)["messages"][0] == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_output_tokens": 5}, {"max_tokens": 5}),
        ({"temperature": 0.5, "top_p": 0.1, "user": "u"}, {"temperature": 0.5, "top_p": 0.1, "user": "u"}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
        ({"text": {"verbosity": "low"}}, {"verbosity": "low"}),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        ({"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
        ({"top_logprobs": 0}, {}),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        ({"tools": [], "tool_choice": "auto", "parallel_tool_calls": False}, {}),
        ({"tool_choice": "none"}, {}),
        (
            {"tool_choice": {"type": "function", "name": "f"}},
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}}},
        ),
        (
            {"tools": [FUNCTION]},
            {"tools": [{"type": "function", "function": {k: v for k, v in FUNCTION.items() if k != "type"}}]},
        ),
        ({"include": ["message.output_text.logprobs"]}, {"logprobs": True}),
        (
            {
                "tools": [FUNCTION, {**FUNCTION, "name": "time"}],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "required",
                    "tools": [{"type": "function", "name": "weather"}],
                },
            },
            {
                "tools": [{"type": "function", "function": {k: v for k, v in FUNCTION.items() if k != "type"}}],
                "tool_choice": "required",
            },
        ),
        ({"include": ["x"], "truncation": "auto", "store": True, "max_tool_calls": 1}, {}),
    ],
)
def test_each_field_is_translated_or_dropped(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert chat(**given) == {"model": "m", "messages": [{"role": "user", "content": "hi"}], **expected}


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"moderation": {"policy": {"output": {"mode": "block"}}}}, "moderation"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": None, "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": "compaction", "encrypted_content": "gAAAAABq"}]}, "input[0].type"),
        ({"input": [{"id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "input[0].content[0]"),
        (
            {
                "input": [
                    {
                        "type": "agent_message",
                        "content": [{"type": "encrypted_content", "encrypted_content": "gAAAAABq"}],
                    }
                ]
            },
            "input[0].content[0]",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}]}, "tools[0].tools[0].type"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tool_choice": {"type": "web_search_preview"}}, "tool_choice"),
    ],
)
def test_what_cannot_be_said_is_refused_by_name(given: dict[str, Any], param: str) -> None:
    with pytest.raises(Untranslatable) as refused:
        chat(**given)
    assert json.loads(refused.value.body)["error"]["param"] == param


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"input": ["a"]}, "input[0]"),
        ({"input": [{"role": "robot", "content": "a"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 7}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": ["a"]}]}, "input[0].content[0]"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]}, "input[0].name"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"tools": {}}, "tools"),
        ({"tools": ["a"]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name"),
    ],
)
def test_what_is_wrong_in_any_format_tries_no_other_model(given: dict[str, Any], param: str) -> None:
    with pytest.raises(UpstreamRejected) as refused:
        chat(**given)
    assert not isinstance(refused.value, Untranslatable)
    assert json.loads(refused.value.body)["error"]["param"] == param


CALL: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def assistant(content: str | None, *call_ids: str) -> dict[str, Any]:
    calls = [CALL | {"id": one} for one in call_ids]
    return {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})


SAID = {"type": "message", "role": "assistant", "content": "Let me see."}
CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
GIVEN = {"type": "function_call_output", "call_id": "c", "output": "sunny"}
TOLD = {"role": "tool", "tool_call_id": "c", "content": "sunny"}
TEXT = {"type": "input_text", "text": "a"}
SHOWN = {"type": "input_image", "image_url": "https://x/i.png"}
SEEN = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/i.png"}}]}
"""An image in a tool result: most providers accept images only in user messages."""


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([SAID, CALLED, GIVEN], [assistant("Let me see.", "c"), TOLD]),
        ([CALLED, SAID, GIVEN], [assistant("Let me see.", "c"), TOLD]),
        ([SAID, {"type": "reasoning"}, CALLED, GIVEN, SAID], [assistant("Let me see.", "c"), TOLD, SAID]),
        ([SAID, CALLED, CALLED | {"call_id": "d"}, SAID], [assistant("Let me see.\n\nLet me see.", "c", "d")]),
        (
            [CALLED, SAID, CALLED, GIVEN, CALLED, GIVEN],
            [assistant("Let me see.", "c"), TOLD, assistant(None, "c"), TOLD],
        ),
        (
            [CALLED, CALLED | {"arguments": '{"x":1}'}, GIVEN, GIVEN],
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [CALL, CALL | {"function": {"name": "f", "arguments": '{"x":1}'}}],
                },
                TOLD,
                TOLD,
            ],
        ),
        ([SAID, SAID], [SAID, SAID]),
        ([CALLED, GIVEN, CALLED | {"call_id": "d"}], [assistant(None, "c"), TOLD, assistant(None, "d")]),
        ([GIVEN | {"output": [TEXT, TEXT]}], [TOLD | {"content": "aa"}]),
        ([GIVEN | {"output": [TEXT, SHOWN]}], [TOLD | {"content": "a"}, SEEN]),
        ([GIVEN | {"output": [SHOWN]}, GIVEN, SAID], [TOLD | {"content": ""}, TOLD, SEEN, SAID]),
    ],
)
def test_what_a_model_says_with_its_calls_is_one_message_with_them(items: list[Any], expected: list[Any]) -> None:
    """Many backends require a call's result directly after the message with the call."""
    plain = [{name: value for name, value in message.items() if name != "type"} for message in expected]
    assert chat(input=items)["messages"] == plain


def test_a_body_that_is_no_object_is_wrong_in_any_format() -> None:
    with pytest.raises(UpstreamRejected, match="JSON object") as refused:
        chat_body_from_responses(b"[]")
    assert not isinstance(refused.value, Untranslatable)


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("is_native", [False, True])
async def test_work_in_the_background_is_refused_before_anything_is_sent_and_says_what_to_do(
    is_native: bool, is_stream: bool
) -> None:
    inner = OpenAICompatibleBackend("one", "http://127.0.0.1:1/v1", None, paths=OPENAI_PATHS)
    backend = TranslatingBackend(inner, native=OPENAI_PATHS if is_native else ())
    asked = {"model": "m", "input": "hi", "background": True, "stream": is_stream}
    with pytest.raises(UpstreamRejected) as refused:
        await backend.open(Call("responses", "m", json.dumps(asked).encode(), is_stream, "r1"))
    await backend.aclose()
    assert not isinstance(refused.value, Untranslatable), "no other model could take it"
    error = json.loads(refused.value.body)["error"]
    assert (refused.value.status, error["param"]) == (400, "background")
    assert "leave it out, and stream" in error["message"]
