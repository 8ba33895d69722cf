"""The view of a body in Anthropic's format: texts, needs and sizes, for all forms of blocks."""

import json
from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.request.view import RequestView, parse_request

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
NOTE = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a note"}}
LONG = "word " * 400


def note(text: str) -> dict[str, Any]:
    return NOTE | {"source": {"type": "text", "media_type": "text/plain", "data": text}}


CHAPTERS = {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "one"}]}}
FOUND = {"type": "search_result", "source": "https://a", "title": "a", "content": [{"type": "text", "text": LONG}]}


def view(**body: Any) -> RequestView:
    full = {"model": "auto", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], **body}
    return parse_request("messages", json.dumps(full).encode())


def asked(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def test_the_least() -> None:
    seen = view()
    assert (seen.operation, seen.model, seen.is_stream, seen.max_output_tokens) == ("messages", "auto", False, 9)
    assert (seen.conversation.last_user, seen.needs, seen.service_tier) == ("hi", (), None)


def test_no_token_at_all_may_be_asked_for_to_fill_a_prompt_cache() -> None:
    assert view(max_tokens=0).max_output_tokens == 0


@pytest.mark.parametrize(
    ("thread", "is_more"),
    [(None, False), ({"type": "create"}, False), ({"type": "continue", "previous_message_id": "msg_1"}, True)],
)
def test_what_a_thread_continues_is_not_in_the_body(thread: dict[str, str] | None, *, is_more: bool) -> None:
    assert view(thread=thread).is_open_ended is is_more


def test_a_systems_message_may_only_say_how_hard_to_think() -> None:
    turns = [{"role": "user", "content": "hi"}, {"role": "system", "output_config": {"effort": "low"}}]
    assert view(messages=turns).conversation == view().conversation


@pytest.mark.parametrize(
    ("body", "needs"),
    [
        ({"stream": True}, ("streaming",)),
        ({"tools": [{"name": "f", "input_schema": {}}]}, ("tools",)),
        (
            asked({"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "f"}}}),
            ("tools",),
        ),
        (asked({"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}), ()),
        (asked({"type": "tool_addition", "tool": "f"}), ()),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, ("json_schema",)),
        ({"output_format": {"type": "json_schema", "schema": {}}}, ("json_schema",)),
        (asked(IMAGE), ("vision",)),
        (asked(PDF), ()),
        (asked({"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}), ("vision",)),
        (asked({"type": "tool_result", "tool_use_id": "t", "content": [PDF, "out"]}), ()),
    ],
)
def test_needs(body: dict[str, Any], needs: tuple[str, ...]) -> None:
    assert view(**body).needs == needs


@pytest.mark.parametrize(
    ("blocks", "last"),
    [
        ([{"type": "text", "text": "a"}, IMAGE, {"type": "text", "text": "b"}], "a\nb"),
        ([NOTE, {"type": "text", "text": "and?"}], "and?\na note"),
        ([CHAPTERS], "one"),
        ([{"type": "tool_result", "tool_use_id": "t", "content": "out"}, {"type": "text", "text": "so?"}], "so?"),
        ([{"type": "something_to_come", "x": 1}], ""),
    ],
)
def test_the_last_words_of_the_user(blocks: list[Any], last: str) -> None:
    assert view(**asked(*blocks)).conversation.last_user == last


@pytest.mark.parametrize(
    "content",
    ["out", [{"type": "text", "text": "out"}], [NOTE | {"source": "out"}, "out"], {"type": "text", "text": "out"}],
)
def test_what_a_tool_gave_counts_whatever_its_form(content: object) -> None:
    conversation = view(
        messages=[
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": content}]},
        ]
    ).conversation
    assert conversation.last_user == "go"


def test_sizes_grow_with_what_a_model_must_read() -> None:
    least = view().input_tokens
    for body in (
        {"system": LONG},
        {"system": [{"type": "text", "text": LONG}]},
        {"tools": [{"name": "f", "description": LONG}]},
        {"output_config": {"format": {"type": "json_schema", "schema": {"description": LONG}}}},
        asked({"type": "tool_result", "tool_use_id": "t", "content": LONG}),
        asked({"type": "tool_result", "tool_use_id": "t", "content": [note(LONG)]}),
        asked(
            {
                "type": "tool_result",
                "tool_use_id": "t",
                "content": [CHAPTERS | {"source": {"type": "content", "content": [{"type": "text", "text": LONG}]}}],
            }
        ),
        asked(FOUND),
        asked({"type": "tool_result", "tool_use_id": "t", "content": [FOUND]}),
        asked({"type": "web_fetch_tool_result", "content": {"type": "web_fetch_result", "content": note(LONG)}}),
        asked({"type": "bash_code_execution_tool_result", "content": {"type": "x", "stdout": LONG}}),
        asked({"type": "tool_use", "id": "t", "name": "f", "input": {"a": LONG}}),
        asked(IMAGE),
        asked(PDF),
        asked({"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}),
    ):
        assert view(**body).input_tokens > least + 400, body


def test_a_conversation_keeps_its_prefix() -> None:
    first = [{"role": "user", "content": "go " * 40}]
    then = [*first, {"role": "assistant", "content": "done"}, {"role": "user", "content": "again"}]
    known = {fingerprint for fingerprint, _ in view(messages=then).prefixes}
    assert view(messages=first).prefixes[-1][0] in known


def test_what_differs_in_every_request_of_an_agent_does_not_hide_its_conversation() -> None:
    heads = [f"x-anthropic-billing-header: cch={number};" for number in (1, 2)]
    asked = [view(system=[{"type": "text", "text": head}, {"type": "text", "text": "Help."}]) for head in heads]
    assert asked[0].prefixes == asked[1].prefixes
    assert asked[0].conversation.system == "Help."


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
        ({"system": 1}, "system"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        view(**body)
    assert refused.value.param == field


def test_a_limit_is_needed_for_an_answer_and_not_for_a_count() -> None:
    body = b'{"model":"auto","messages":[{"role":"user","content":"hi"}],"stream":true}'
    with pytest.raises(InvalidRequest, match="max_tokens"):
        parse_request("messages", body)
    counted = parse_request("messages.count_tokens", body)
    assert (counted.operation, counted.is_stream, counted.max_output_tokens) == ("messages.count_tokens", False, None)


def test_results_nested_without_end_are_not_followed() -> None:
    deep: object = "x"
    for _ in range(200):
        deep = [deep]
    assert view(**asked({"type": "tool_result", "tool_use_id": "t", "content": deep})).input_tokens > 0
