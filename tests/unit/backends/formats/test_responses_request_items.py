"""Chat messages as input items of a response, including reasoning and calls."""

import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter

from backends.formats.past_thinking import carry, detail_of
from tests.unit.backends.formats.responses_calls import HELLO, HI, Json, built, make_call

PICTURE: Json = {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}}
CALL: Json = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"n": 1}'}}
CALLED: Json = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"n": 1}'}
OTHER: Json = {"id": "call_2", "type": "function", "function": {"name": "f", "arguments": ""}}
OTHER_CALLED: Json = {"type": "function_call", "call_id": "call_2", "name": "f", "arguments": "{}"}
RUN: Json = {"id": "call_3", "type": "custom", "custom": {"name": "c", "input": "go"}}
LONG = "chatcmpl-tool-" + "0" * 32
SAID: list[tuple[list[Json], list[Json]]] = [
    (
        [{"role": "system", "content": "s"}, {"role": "developer", "content": "d", "name": "x"}, *HELLO],
        [
            {"type": "message", "role": "system", "content": "s"},
            {"type": "message", "role": "developer", "content": "d"},
            HI,
        ],
    ),
    (
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look", "prompt_cache_breakpoint": {"mode": "explicit"}},
                    {"type": "text", "text": "here", "cache_control": {"type": "ephemeral"}},
                    PICTURE,
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                    {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}},
                    {"type": "file", "file": {"file_id": "file-1"}},
                ],
            }
        ],
        [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "look", "prompt_cache_breakpoint": {"mode": "explicit"}},
                    {"type": "input_text", "text": "here"},
                    {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"},
                    {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
                    {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
                    {"type": "input_file", "file_id": "file-1"},
                ],
            }
        ],
    ),
    (
        [
            *HELLO,
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "let me "}, {"type": "text", "text": "see"}],
                "tool_calls": [CALL, OTHER],
            },
            {
                "role": "tool",
                "tool_call_id": "call_2",
                "content": [{"type": "text", "text": "t"}, {"type": "text", "text": "wo"}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "one"},
            {"role": "assistant", "content": "done"},
            {"role": "assistant", "content": None, "refusal": "no"},
            {"role": "assistant", "content": ""},
        ],
        [
            HI,
            {"type": "message", "role": "assistant", "content": "let me see"},
            CALLED,
            OTHER_CALLED,
            {"type": "function_call_output", "call_id": "call_2", "output": "two"},
            {"type": "function_call_output", "call_id": "call_1", "output": "one"},
            {"type": "message", "role": "assistant", "content": "done"},
            {"type": "message", "role": "assistant", "content": "no"},
        ],
    ),
    (
        [
            *HELLO,
            {"role": "assistant", "tool_calls": [RUN]},
            {"role": "tool", "tool_call_id": "call_3", "content": [{"type": "text", "text": "ran"}, PICTURE]},
        ],
        [
            HI,
            {"type": "custom_tool_call", "call_id": "call_3", "name": "c", "input": "go"},
            {
                "type": "custom_tool_call_output",
                "call_id": "call_3",
                "output": [
                    {"type": "input_text", "text": "ran"},
                    {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"},
                ],
            },
        ],
    ),
    (
        [
            *HELLO,
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "one"},
        ],
        [
            HI,
            {"type": "function_call", "call_id": "f", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "f", "output": "one"},
        ],
    ),
]


@pytest.mark.parametrize(("messages", "expected"), SAID)
def test_a_conversation(messages: list[Json], expected: list[Json]) -> None:
    body = built(make_call(messages=messages))
    assert body["input"] == expected
    TypeAdapter(ResponseCreateParamsNonStreaming).validate_python(body | {"stream": False})


def test_ids_of_calls_that_openai_refuses_are_said_otherwise_in_both_places() -> None:
    messages = [
        *HELLO,
        {"role": "assistant", "tool_calls": [CALL | {"id": LONG}]},
        {"role": "tool", "tool_call_id": LONG},
    ]
    _, call, output = built(make_call(messages=messages))["input"]
    assert call["call_id"] == output["call_id"] != LONG
    assert len(call["call_id"]) <= 40


def thought(encrypted: str, place: int, backend: str = "openai") -> Json:
    return detail_of(carry(encrypted, backend), place)


def reasoned(encrypted: str) -> Json:
    return {"type": "reasoning", "summary": [], "encrypted_content": encrypted}


PAST: list[tuple[Json, list[Json]]] = [
    ({"tool_calls": [CALL], "reasoning_details": [thought("r", 0)]}, [reasoned("r"), CALLED]),
    (
        {"tool_calls": [CALL, OTHER], "reasoning_details": [thought("second", 2), thought("first", 0)]},
        [reasoned("first"), CALLED, reasoned("second"), OTHER_CALLED],
    ),
    (
        {"content": "so", "tool_calls": [CALL], "reasoning_details": [thought("r", 1)]},
        [{"type": "message", "role": "assistant", "content": "so"}, reasoned("r"), CALLED],
    ),
    # nothing may follow what was thought for nothing, nor may anything be lost behind it
    ({"tool_calls": [CALL], "reasoning_details": [thought("r", 7)]}, [reasoned("r"), CALLED]),
    ({"content": "", "reasoning_details": [thought("r", 0)]}, []),
    # another provider's, which nobody could read here
    ({"tool_calls": [CALL], "reasoning_details": [thought("r", 0, "azure")]}, [CALLED]),
    ({"tool_calls": [CALL], "reasoning_details": [{"type": "reasoning.encrypted", "data": "gAAA"}, 5]}, [CALLED]),
    ({"tool_calls": [CALL], "reasoning_content": "hm", "reasoning_details": "x"}, [CALLED]),
]


@pytest.mark.parametrize(("answer", "expected"), PAST)
def test_what_was_thought_stands_where_it_was_thought(answer: Json, expected: list[Json]) -> None:
    call = make_call(messages=[*HELLO, {"role": "assistant", **answer}])
    assert built(call)["input"] == [HI, *expected]


def test_without_it_nothing_is_said_nor_asked_of_what_is_thought() -> None:
    answer = {"role": "assistant", "tool_calls": [CALL], "reasoning_details": [thought("r", 0)]}
    body = built(make_call(messages=[*HELLO, answer]), keeps_past=False)
    assert body["input"] == [HI, CALLED]
    assert "include" not in body
