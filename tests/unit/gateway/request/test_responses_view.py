"""Items of /v1/responses as the gateway reads them: no form that OpenAI accepts is refused."""

import json

import pytest

from backends.endpoints.responses_compaction import ASK
from gateway.request.view import TOKENS_PER_IMAGE, RequestView, parse_request

PIXEL = "data:image/png;base64," + "A" * 4000


def view(*items: object) -> RequestView:
    body = {"model": "m", "input": [{"role": "user", "content": "hi"}, *items]}
    return parse_request("responses", json.dumps(body).encode())


@pytest.mark.parametrize(
    "item",
    [
        {"type": "computer_call", "call_id": "c", "action": {"type": "click", "x": 1, "y": 2}},
        {"type": "tool_search_call", "arguments": {"query": "x"}},
        {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a", "outcome": {"exit_code": 0}}]},
        {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
        {"type": "mcp_list_tools", "server_label": "s", "tools": []},
        {"type": "of a version to come", "input": {"a": [1]}, "arguments": 3},
    ],
)
def test_an_item_of_any_form_is_read(item: object) -> None:
    assert view(item).input_tokens > view().input_tokens


def test_what_another_agent_asked_for_is_what_the_user_said() -> None:
    parts = [
        {"type": "input_text", "text": "Payload:"},
        {"type": "encrypted_content", "encrypted_content": "Prove it."},
    ]
    seen = view({"type": "agent_message", "author": "/root", "recipient": "/root/a", "content": parts})
    assert (seen.conversation.last_user, seen.is_open_ended) == ("Payload:\nProve it.", False)


LONG = "some words " * 100


@pytest.mark.parametrize(
    "said",
    [
        {"input": LONG},
        {"arguments": LONG},
        {"arguments": {"query": LONG}},
        {"output": LONG},
        {"output": [{"type": "input_text", "text": LONG}]},
        {"output": [{"stdout": "", "stderr": LONG, "outcome": {"type": "timeout"}}]},
        {"operation": {"type": "update_file", "path": "a", "diff": LONG}},
    ],
)
def test_what_a_call_says_counts_wherever_it_is_said(said: dict[str, object]) -> None:
    assert view({"type": "custom_tool_call", **said}).input_tokens > 200


def test_tools_that_the_input_offers_count_as_tools() -> None:
    functions = [{"type": "function", "name": "f", "parameters": {"description": LONG}}]
    seen = view({"type": "additional_tools", "role": "developer", "tools": functions})
    assert seen.needs == ("tools",)
    assert seen.input_tokens > 200


def test_what_a_summary_is_asked_for_with_counts_and_a_trigger_of_an_earlier_turn_does_not() -> None:
    hello, trigger = {"role": "user", "content": "hello"}, {"type": "compaction_trigger"}
    asked, past = view(hello, trigger).input_tokens, view(trigger, hello).input_tokens
    assert asked - past - len(ASK) // 4 in (0, 1)


@pytest.mark.parametrize(
    "output",
    [
        {"type": "computer_screenshot", "image_url": PIXEL},
        [{"type": "input_image", "image_url": PIXEL}],
    ],
)
def test_a_picture_that_a_tool_gave_needs_a_model_that_sees(output: object) -> None:
    seen = view({"type": "computer_call_output", "call_id": "c", "output": output})
    assert "vision" in seen.needs
    assert TOKENS_PER_IMAGE <= seen.input_tokens < TOKENS_PER_IMAGE + 50
    assert seen.image_bytes > 4000
    assert not seen.is_open_ended


def test_what_is_only_counted_is_viewed_as_the_response_would_be_with_the_schema_that_it_has_to_follow() -> None:
    asked = {"model": "m", "input": "hello", "instructions": "Be brief.", "tools": [{"type": "function", "name": "f"}]}
    schema = {"type": "json_schema", "name": "n", "schema": {"description": "x" * 400}}
    answered = parse_request("responses", json.dumps(asked).encode())
    counted = parse_request("responses.input_tokens", json.dumps(asked).encode())
    assert (counted.input_tokens, counted.needs) == (answered.input_tokens, answered.needs)
    shaped = json.dumps({**asked, "text": {"format": schema}}).encode()
    for operation in ("responses", "responses.input_tokens"):
        added = parse_request(operation, shaped).input_tokens - answered.input_tokens
        assert added == len(json.dumps(schema["schema"])) // 4
    assert parse_request("responses.input_tokens", b'{"input": null}').model == "auto"
