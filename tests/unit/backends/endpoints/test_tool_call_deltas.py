"""Streamed tool calls, properly numbered or not, and their translations to Messages and Responses."""

import json
from time import process_time
from typing import Any

import msgspec
import pytest

from backends.endpoints.content_events import ContentHead, content_from_answer
from backends.endpoints.messages_events import MessagesEventWriter, message_from_answer
from backends.endpoints.responses_events import ResponsesEventWriter
from backends.endpoints.responses_items import ResponseHead
from backends.endpoints.tool_call_deltas import EndlessAnswer, ToolCallNumbers
from backends.http.sse import SseParser
from backends.http.stream_reader import MOST_CALLS
from backends.protocol import Chunk

Piece = dict[str, Any]


def piece(index: int | None, call_id: str | None = None, name: str | None = None, arguments: str = "") -> Piece:
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    made: Piece = {"function": function} | ({} if index is None else {"index": index})
    return made | ({} if call_id is None else {"id": call_id, "type": "function"})


STREAMS: dict[str, list[list[Piece]]] = {
    "counted up": [
        [piece(0, "a", "f")],
        [piece(0, arguments='{"x":1}')],
        [piece(1, "b", "g")],
        [piece(1, None, None, "{}")],
    ],
    "with a gap": [[piece(1, "a", "f", '{"x":1}')], [piece(4, "b", "g", "{}")]],
    "whole, in one piece": [[piece(0, "a", "f", '{"x":1}'), piece(1, "b", "g", "{}")]],
    "whole, not numbered": [[piece(None, "a", "f", '{"x":1}')], [piece(None, "b", "g", "{}")]],
    "not numbered": [[piece(None, "a", "f", '{"x"')], [piece(None, None, None, ":1}")], [piece(None, "b", "g", "{}")]],
    "not numbered, named by id": [
        [piece(None, "a", "f", '{"x"'), piece(None, "b", "g", "{}")],
        [piece(None, "a", None, ":1}")],
    ],
    "all numbered 0": [[piece(0, "a", "f", '{"x":1}')], [piece(0, "b", "g", "{")], [piece(0, None, None, "}")]],
    "id and name in every piece": [
        [piece(0, "a", "f", '{"x"')],
        [piece(0, "a", "f", ":1}")],
        [piece(1, "b", "g", "{}")],
    ],
    "arguments as an object": [
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": 1}}}, piece(1, "b", "g", "{}")]
    ],
    "the name after the id": [
        [piece(0, "a") | {"function": {"name": None}}],
        [piece(0, None, "f", '{"x"')],
        [piece(0, None, None, ":1}"), piece(1, "b", "g", "{}")],
    ],
    "the name after the arguments": [
        [piece(0, "a", None, '{"x"'), piece(1, "b", "", "{}")],
        [piece(0, None, None, ":1}"), piece(0, "a", "f"), piece(1, None, "g")],
    ],
    "not numbered, the name after the id": [
        [piece(None, "a", None, "{")],
        [piece(None, None, "f", '"x":1}'), piece(None, "b", "g", "{}")],
    ],
    "an empty id later": [[piece(0, "a", "f", '{"x"')], [piece(0, "", "", ":1}")], [piece(1, "b", "g", "{}")]],
    "by turns": [
        [piece(0, "a", "f", '{"x"')],
        [piece(1, "b", "g", "{")],
        [piece(0, arguments=":1}")],
        [piece(1, arguments="}")],
    ],
}


def chunks(pieces: list[list[Piece]], finish_reason: str | None) -> list[Chunk]:
    def chunk(delta: dict[str, Any]) -> Chunk:
        document = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta}]}
        return Chunk(b"data: " + msgspec.json.encode(document) + b"\n\n")

    said = [chunk({"role": "assistant", "content": ""}), *(chunk({"tool_calls": one}) for one in pieces)]
    return [*said, Chunk(b"", finish_reason=finish_reason), Chunk(b"data: [DONE]\n\n", is_done=True)]


def events_of(payloads: list[bytes]) -> list[dict[str, Any]]:
    parser = SseParser()
    return [json.loads(event) for event in (*parser.receive(b"".join(payloads)), *parser.finish())]


@pytest.mark.parametrize("name", STREAMS)
def test_messages_has_each_call_with_its_arguments_and_ends_for_the_tools(name: str) -> None:
    writer = MessagesEventWriter(message_id="msg", model="m", input_tokens=1)
    events = events_of([writer.write(chunk) for chunk in chunks(STREAMS[name], "stop")])
    blocks: dict[int, dict[str, Any]] = {}
    is_open: set[int] = set()
    for event in events:
        if event["type"] == "content_block_start":
            blocks[event["index"]] = {**event["content_block"], "input": ""}
            is_open.add(event["index"])
        elif event["type"] == "content_block_delta":
            assert event["index"] in is_open
            blocks[event["index"]]["input"] += event["delta"]["partial_json"]
        elif event["type"] == "content_block_stop":
            is_open.remove(event["index"])
    assert not is_open
    assert [(block["id"], block["name"], block["input"]) for _, block in sorted(blocks.items())] == [
        ("a", "f", '{"x":1}'),
        ("b", "g", "{}"),
    ]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize("name", STREAMS)
def test_responses_has_each_call_with_its_arguments(name: str) -> None:
    writer = ResponsesEventWriter(ResponseHead("resp", 7, {}), now=lambda: 9)
    events = events_of([writer.write(chunk) for chunk in chunks(STREAMS[name], "tool_calls")])
    output = events[-1]["response"]["output"]
    assert [(item["call_id"], item["name"], item["arguments"]) for item in output] == [
        ("a", "f", '{"x":1}'),
        ("b", "g", "{}"),
    ]
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert sorted((event["output_index"], event["item"]["call_id"]) for event in done) == [(0, "a"), (1, "b")]
    streamed = {0: "", 1: ""}
    for event in events:
        if event["type"] == "response.function_call_arguments.delta":
            streamed[event["output_index"]] += event["delta"]
    assert streamed == {0: '{"x":1}', 1: "{}"}


def test_calls_without_end_are_not_remembered() -> None:
    numbers = ToolCallNumbers()
    for number in range(MOST_CALLS):
        numbers.number({"index": number})
    with pytest.raises(EndlessAnswer):
        numbers.number({"index": -1})
    assert numbers.number({"index": 7}) == 7


UNNAMED: dict[str, list[list[Piece]]] = {
    "no ids": [
        [piece(0, None, "f", '{"x"')],
        [piece(0, None, None, ":1}")],
        [piece(0, "", "g", "{}")],
    ],
    "one function": [[piece(0, "", "f", '{"x":1}')], [piece(0, "", "f", "{}")]],
    "a name in every piece": [
        [piece(0, "", "f", "")],
        [piece(0, "", "f", '{"x"')],
        [piece(0, "", "f", ":1}")],
        [piece(0, "", "g", "{}")],
    ],
}


@pytest.mark.parametrize("name", UNNAMED)
def test_calls_without_ids_stay_apart(name: str) -> None:
    message = MessagesEventWriter(message_id="msg", model="m", input_tokens=1)
    events = events_of([message.write(chunk) for chunk in chunks(UNNAMED[name], "stop")])
    said = [event for event in events if event["type"] == "content_block_delta"]
    assert ["".join(one["delta"]["partial_json"] for one in said if one["index"] == place) for place in (0, 1)] == [
        '{"x":1}',
        "{}",
    ]
    response = ResponsesEventWriter(ResponseHead("resp", 7, {}), now=lambda: 9)
    last = events_of([response.write(chunk) for chunk in chunks(UNNAMED[name], "tool_calls")])[-1]
    assert [item["arguments"] for item in last["response"]["output"]] == ['{"x":1}', "{}"]


@pytest.mark.parametrize("arguments", ['{"x":"}\\\\"}', '{"}\\"{":{"y":"\\u007d"}}', "{}"])
def test_where_arguments_end_is_found_however_they_are_cut(arguments: str) -> None:
    for pieces in (list(arguments), [arguments]):
        numbers = ToolCallNumbers()
        assert {numbers.number(piece(0, "", "f", one)) for one in pieces} == {0}
        assert numbers.is_whole(0)
        assert numbers.number(piece(0, "", "f", "{")) == 1
        assert not numbers.is_whole(1)


@pytest.mark.parametrize("arguments", ['{"x":"}', "{}x", "{x}", "[{}]", "}", "[]", "{} {}"])
def test_what_is_no_object_yet_is_not_whole(arguments: str) -> None:
    for pieces in (list(arguments), [arguments]):
        numbers = ToolCallNumbers()
        for one in pieces:
            numbers.number(piece(0, "a", None, one))
        assert not numbers.is_whole(0)


def test_a_call_that_has_no_name_is_none() -> None:
    for writer in (
        MessagesEventWriter(message_id="msg", model="m", input_tokens=1),
        ResponsesEventWriter(ResponseHead("resp", 7, {}), now=lambda: 9),
    ):
        written = b"".join(writer.write(chunk) for chunk in chunks([[piece(0, "a", None, "{}")]], "tool_calls"))
        assert b"tool_use" not in written
        assert b"function_call" not in written


def test_thousands_of_calls_are_not_compared_each_with_all() -> None:
    began = process_time()
    open_calls = chunks([[piece(place, f"c{place}", "f", '{"x"')] for place in range(2_000)], "tool_calls")
    message = MessagesEventWriter(message_id="msg", model="m", input_tokens=1)
    response = ResponsesEventWriter(ResponseHead("resp", 7, {}), now=lambda: 9)
    for chunk in open_calls:
        message.write(chunk)
        response.write(chunk)
    whole = {"choices": [{"message": {"tool_calls": [piece(None, f"c{place}", "f", "{}") for place in range(8_000)]}}]}
    told = json.loads(content_from_answer(json.dumps(whole).encode(), None, ContentHead("a", "m")))
    assert len(told["candidates"][0]["content"]["parts"]) == 8_000
    numbers = ToolCallNumbers()
    for _ in range(8_000):  # one call, whose every piece has the name
        numbers.number(piece(0, "", "f", '{"x'))
    assert process_time() - began < 2  # it took eight times as long, in quadratic time


def test_a_response_says_no_arguments_as_an_empty_object() -> None:
    writer = ResponsesEventWriter(ResponseHead("resp", 7, {}), now=lambda: 9)
    events = events_of([writer.write(chunk) for chunk in chunks([[piece(0, "a", "f")]], "tool_calls")])
    deltas = [event["delta"] for event in events if event["type"] == "response.function_call_arguments.delta"]
    assert deltas == ["{}"]
    assert events[-1]["response"]["output"][0]["arguments"] == "{}"


def test_a_call_that_is_not_whole_when_the_answer_ends_is_closed_too() -> None:
    writer = MessagesEventWriter(message_id="msg", model="m", input_tokens=1)
    cut = chunks([[piece(0, "a", "f", '{"x"')], [piece(1, "b", "g", "")]], "length")
    events = events_of([writer.write(chunk) for chunk in cut])
    assert sum(event["type"] == "content_block_stop" for event in events) == 2
    assert events[-2]["delta"]["stop_reason"] == "max_tokens"


ENDS: list[tuple[str | None, list[Piece], str]] = [
    ("stop", [piece(None, "a", "f", "{}")], "tool_use"),
    (None, [piece(None, "a", "f", "{}")], "tool_use"),
    ("eos", [piece(None, "a", "f", "{}")], "tool_use"),
    ("stop", [], "end_turn"),
    ("tool_calls", [], "end_turn"),
    ("model_context_window_exceeded", [], "max_tokens"),
    ("sensitive", [], "refusal"),
    ("content_filter: RECITATION", [], "refusal"),
]


@pytest.mark.parametrize(("reason", "calls", "expected"), ENDS)
def test_an_answer_ends_for_the_tools_where_it_calls_any(reason: str | None, calls: list[Piece], expected: str) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": reason}]}).encode()
    assert json.loads(message_from_answer(body, None, message_id="msg", model="m"))["stop_reason"] == expected
    writer = MessagesEventWriter(message_id="msg", model="m", input_tokens=1)
    events = events_of([writer.write(chunk) for chunk in chunks([calls], reason)])
    assert events[-2]["delta"]["stop_reason"] == expected
