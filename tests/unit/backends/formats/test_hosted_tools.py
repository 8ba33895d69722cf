"""A provider's own tool calls for an answer, counted from its output."""

import json

import pytest

from backends.formats.hosted_tools import ToolCalls, calls_of_response
from backends.formats.responses import ResponsesStreamReader, read_response, usage_of
from backends.formats.usage_wire import MalformedUsage, parse_openai_usage
from backends.usage import Usage

Json = dict[str, object]
WEB: Json = {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}}
OPENED: Json = {"type": "web_search_call", "status": "completed", "action": {"type": "open_page", "url": "u"}}
FILES: Json = {"type": "file_search_call", "queries": ["q"]}
CODE: Json = {"type": "code_interpreter_call", "container_id": "c"}
IMAGE: Json = {"type": "image_generation_call", "result": "…"}
MESSAGE: Json = {"type": "message", "content": [{"type": "output_text", "text": "hello"}]}
TOKENS: Json = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}


def shell(environment: Json | None) -> Json:
    return {"type": "shell_call", "environment": environment}


CASES: list[tuple[Json, ToolCalls]] = [
    ({}, ToolCalls()),
    ({"output": None, "tools": "none"}, ToolCalls()),
    ({"output": ["?", 1, {"type": ["web_search_call"]}]}, ToolCalls()),
    ({"output": [MESSAGE, {"type": "function_call"}, {"type": "mcp_call"}]}, ToolCalls()),
    ({"output": [WEB, OPENED, WEB, MESSAGE]}, ToolCalls(web_searches=2)),
    ({"output": [{"type": "web_search_call"}]}, ToolCalls(web_searches=1)),
    ({"output": [WEB, OPENED], "tool_usage": {"web_search": {"num_requests": 3}}}, ToolCalls(web_searches=3)),
    ({"output": [WEB], "tool_usage": {"web_search": {"num_requests": "3"}}}, ToolCalls(web_searches=1)),
    ({"output": [WEB], "tool_usage": {"web_search": None}}, ToolCalls(web_searches=1)),
    ({"output": [FILES, WEB, FILES]}, ToolCalls(1, 2)),
    ({"output": [CODE, IMAGE]}, ToolCalls(other_tool_calls=2)),
    ({"output": [shell(None), shell({"type": "local"})]}, ToolCalls()),
    ({"output": [shell({"type": "container_reference"})]}, ToolCalls(other_tool_calls=1)),
    ({"output": [WEB, FILES], "tools": [{"type": "web_search_preview"}]}, ToolCalls(0, 1, 1)),
    ({"output": [WEB], "tools": [{"type": "web_search"}, {"type": "function"}, "?"]}, ToolCalls(web_searches=1)),
]


@pytest.mark.parametrize(("response", "expected"), CASES)
def test_calls_of_a_response(response: Json, expected: ToolCalls) -> None:
    assert calls_of_response(response) == expected


@pytest.mark.parametrize(
    ("model", "items", "input_tokens", "expected"),
    [
        ("gpt-4.1-mini-2025-04-14", [WEB, OPENED, WEB], 347, Usage(16_347, web_searches=2, is_estimated=True)),
        ("gpt-4o-mini", [WEB], 8_347, Usage(8_347, web_searches=1, is_estimated=True)),
        ("gpt-4o-mini", [OPENED], 347, Usage(347)),
        ("gpt-4.1-2025-04-14", [WEB], 347, Usage(347, web_searches=1)),
    ],
)
def test_two_models_searches_are_billed_by_blocks_that_no_usage_is_known_to_count(
    model: str, items: list[Json], input_tokens: int, expected: Usage
) -> None:
    said: Json = {"model": model, "output": items, "usage": {"input_tokens": input_tokens, "output_tokens": 0}}
    assert usage_of(said) == (expected, False)
    assert usage_of(said | {"output": [WEB], "tools": [{"type": "web_search_preview"}]})[0] == Usage(
        input_tokens, other_tool_calls=1
    )


def test_whole_and_streamed_responses_count_the_same() -> None:
    response: Json = {
        "object": "response", "status": "completed", "output": [WEB, FILES, CODE, MESSAGE], "usage": TOKENS
    }  # fmt: skip
    expected = Usage(9, output_tokens=3, web_searches=1, file_searches=1, other_tool_calls=1)
    assert read_response(json.dumps(response).encode(), backend="b").usage == expected
    reader = ResponsesStreamReader("b")
    [last] = reader.read(json.dumps({"type": "response.completed", "response": response}).encode())
    assert last.usage == expected


def test_what_a_usage_says_itself_is_believed_before_the_output() -> None:
    usage: Json = TOKENS | {"server_side_tool_usage_details": {"web_search_calls": 2, "x_search_calls": 0}}
    response: Json = {"object": "response", "status": "completed", "output": [WEB, OPENED, WEB, WEB], "usage": usage}
    chunk = read_response(json.dumps(response).encode(), backend="b")
    assert chunk.usage == Usage(9, output_tokens=3, web_searches=2)


CHAT: Json = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
REPORTED: list[tuple[Json, Usage]] = [
    ({"server_tool_use": {"web_search_requests": 2}}, Usage(9, output_tokens=3, web_searches=2)),
    ({"prompt_tokens_details": {"web_search_requests": 2}}, Usage(9, output_tokens=3, web_searches=2)),
    ({"num_search_queries": 4}, Usage(9, output_tokens=3, web_searches=4)),
    (
        {"server_side_tool_usage_details": {"web_search_calls": 1, "file_search_calls": 2, "mcp_calls": 3}},
        Usage(9, output_tokens=3, web_searches=1, file_searches=2),
    ),
    (  # X, since September 2026 by the post and profile
        {"server_side_tool_usage_details": {"web_search_calls": 2, "x_posts_fetched": 44, "x_users_fetched": 3}},
        Usage(9, output_tokens=3, web_searches=2, other_tool_calls=47),
    ),
    (
        {"server_side_tool_usage_details": {"x_search_calls": 1, "code_interpreter_calls": 2}},
        Usage(9, output_tokens=3, other_tool_calls=3),
    ),
    ({"server_tool_use": None, "num_search_queries": None}, Usage(9, output_tokens=3)),
]


@pytest.mark.parametrize(("said", "expected"), REPORTED)
def test_what_a_chat_usage_reports(said: Json, expected: Usage) -> None:
    assert parse_openai_usage(CHAT | said) == expected


def test_a_count_that_is_none_makes_the_usage_malformed() -> None:
    with pytest.raises(MalformedUsage, match="web_search_requests"):
        parse_openai_usage(CHAT | {"server_tool_use": {"web_search_requests": -1}})
