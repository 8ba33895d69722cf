"""Chat messages in Anthropic's format: parts, calls and their results, cache marks."""

from typing import cast

import pytest

from backends.errors import UpstreamRejected
from backends.formats.anthropic_request import DEFAULT_MAX_TOKENS
from backends.formats.call_ids import for_anthropic
from tests.unit.backends.formats.anthropic_bodies import CALL, HI, HI_SAID, OLDER, TOOL, Json, ask, translate

PNG = "data:image/png;base64,iVBORw0KGgo="


def test_instructions_are_asked_as_a_users_where_the_user_says_nothing() -> None:
    system: Json = {"role": "system", "content": "Write."}
    for messages in ([system], [system, {"role": "user", "content": ""}]):
        assert translate({"messages": messages})["messages"] == [
            {"role": "user", "content": [{"type": "text", "text": "Write."}]}
        ]


def test_a_conversation_with_tools_and_media() -> None:
    cached = {"type": "text", "text": "long", "cache_control": {"type": "ephemeral"}}
    messages: list[Json] = [
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": [cached]},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": PNG}},
                {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": [CALL, CALL | {"id": "c2"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "2"}]},
        {"role": "user", "content": "and?"},
    ]
    said = translate({"messages": messages})
    assert said["system"] == [{"type": "text", "text": "be brief"}, cached]
    used = {"type": "tool_use", "name": "f", "input": {"a": 1}}
    result = {"type": "tool_result"}
    assert said["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
                {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
                    "title": "a.pdf",
                },
            ],
        },
        {"role": "assistant", "content": [used | {"id": "c1"}, used | {"id": "c2"}]},
        {
            "role": "user",
            "content": [
                result | {"tool_use_id": "c1", "content": [{"type": "text", "text": "1"}]},
                result | {"tool_use_id": "c2", "content": [{"type": "text", "text": "2"}]},
                {"type": "text", "text": "and?"},
            ],
        },
    ]


def test_a_text_file_is_said_as_text() -> None:
    file: Json = {"type": "file", "file": {"filename": "a.md", "file_data": "data:text/markdown;base64,aMOp"}}
    source = {"type": "text", "media_type": "text/plain", "data": "hé"}
    message = cast(list[Json], translate(ask(file))["messages"])[0]
    assert message["content"] == [{"type": "document", "source": source, "title": "a.md"}]
    broken: Json = {"type": "file", "file": {"filename": "a.md", "file_data": "data:text/plain;base64,/w=="}}
    with pytest.raises(UpstreamRejected, match="UTF-8"):
        translate(ask(broken))


MARK: Json = {"cache_control": {"type": "ephemeral"}}


def marks_in(messages: list[Json], tools: list[Json]) -> list[object]:
    """Which blocks are marked: in the system prompt, in each message, and among the tools."""
    said = translate({"messages": messages, "tools": tools})
    turns = cast(list[Json], said["messages"])
    blocks = [said["system"], *(turn["content"] for turn in turns), said.get("tools", [])]
    return [["cache_control" in block for block in cast(list[Json], row)] for row in blocks]


def test_a_mark_on_a_message_a_call_or_a_tool_is_on_what_it_became() -> None:
    system: Json = {"role": "system", "content": "long"}
    user: Json = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    calls: Json = {"role": "assistant", "content": "I look.", "tool_calls": [CALL, CALL | {"id": "c2"}]}
    results: list[Json] = [{"role": "tool", "tool_call_id": name, "content": "1"} for name in ("c1", "c2")]
    plain = [system, user, calls, *results]
    assert marks_in(plain, [TOOL]) == [[False], [False] * 2, [False] * 3, [False] * 2, [False]]

    on_messages = [message | MARK for message in (system, user, calls, *results)]
    marked = [[True], [False, True], [False, False, True], [True, True], [True]]
    assert marks_in(on_messages, [TOOL | MARK]) == marked
    inside: Json = TOOL | {"function": cast(Json, TOOL["function"]) | MARK}
    assert marks_in([system, user], [inside])[-1] == [True]
    on_a_call = calls | {"tool_calls": [CALL | MARK, CALL | {"id": "c2"}]}
    assert marks_in([system, user, on_a_call, *results], [])[2] == [False, True, False]


def test_a_mark_inside_a_tools_result_is_on_the_result() -> None:
    content: list[Json] = [{"type": "text", "text": "1"}, {"type": "text", "text": "2"} | MARK]
    result: Json = {"role": "tool", "tool_call_id": "c1", "content": content}
    messages = cast(
        list[Json], translate({"messages": [*HI, {"role": "assistant", "tool_calls": [CALL]}, result]})["messages"]
    )
    plain = [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]
    assert messages[-1]["content"] == [{"type": "tool_result", "tool_use_id": "c1", "content": plain} | MARK]


def test_a_message_marked_twice_keeps_the_mark_of_its_part() -> None:
    part: Json = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    assert translate({"messages": [{"role": "user", "content": [part]} | MARK]})["messages"] == [
        {"role": "user", "content": [part]}
    ]
    assert translate({"messages": [{"role": "system", "content": ""} | MARK, *HI]}) == translate({})


def test_a_call_of_kimis_gets_an_id_that_anthropic_takes() -> None:
    messages = [*HI, {"role": "assistant", "tool_calls": [CALL | {"id": "functions.f:0"}]}]
    body = translate({"messages": [*messages, {"role": "tool", "tool_call_id": "functions.f:0", "content": "1"}]})
    [_, asked, answered] = cast(list[dict[str, list[Json]]], body["messages"])
    assert asked["content"][0]["id"] == answered["content"][0]["tool_use_id"] == for_anthropic("functions.f:0")


ASKED: Json = {"role": "user", "content": "hi"}


def said(text: str) -> Json:
    return {"type": "text", "text": text}


def test_white_space_that_anthropic_refuses_is_left_out() -> None:
    messages: list[Json] = [
        {"role": "system", "content": [said(" "), said("be brief")]},
        ASKED,
        {"role": "assistant", "content": "\n\n", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "\n"},
        {"role": "assistant", "content": "\n"},
        {"role": "assistant", "content": "Sure: \n"},
    ]
    assert translate({"messages": messages}) == {
        "model": OLDER,
        "max_tokens": DEFAULT_MAX_TOKENS,
        "system": [said("be brief")],
        "messages": [
            *HI_SAID,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": []}]},
            {"role": "assistant", "content": [said("Sure:")]},
        ],
    }


def test_results_come_before_what_the_user_says_between_them() -> None:
    messages: list[Json] = [
        ASKED,
        {"role": "assistant", "tool_calls": [CALL, CALL | {"id": "c2"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "user", "content": "wait"},
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
    ]
    last = cast(list[dict[str, list[Json]]], translate({"messages": messages})["messages"])[-1]
    kinds = [block.get("tool_use_id") or block["text"] for block in last["content"]]
    assert kinds == ["c1", "c2", "wait"]


def test_a_jpg_is_a_jpeg() -> None:
    image: Json = {"type": "image_url", "image_url": {"url": "data:image/jpg;base64,/9j/4AAQ"}}
    [message] = cast(
        list[dict[str, list[Json]]], translate({"messages": [{"role": "user", "content": [image]}]})["messages"]
    )
    assert message["content"][0]["source"] == {"type": "base64", "media_type": "image/jpeg", "data": "/9j/4AAQ"}
