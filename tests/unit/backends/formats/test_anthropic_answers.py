"""Anthropic's answers and events: translated to OpenAI's chunks, and passed on unchanged."""

import json
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.errors import BackendError, RateLimited, StreamBroken, UnreadableAnswer, UpstreamUnavailable
from backends.formats.anthropic import MOST_INPUT_CHARACTERS, AnthropicStreamReader, openai_error, read_message
from backends.formats.anthropic_messages import NativeMessagesReader, read_native_message
from backends.http.stream_reader import MOST_CALLS, StreamReader
from backends.protocol import Chunk
from backends.usage import Usage

Json = dict[str, object]
MESSAGE: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x-1",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Let me "},
        {"type": "text", "text": "see."},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 9},
}


def test_a_message_as_a_chat_answer() -> None:
    chunk = read_message(json.dumps(MESSAGE).encode(), backend="b", created=7)
    function = {"name": "f", "arguments": '{"a":1}'}
    assert json.loads(chunk.payload) == {
        "id": "msg_1",
        "object": "chat.completion",
        "created": 7,
        "model": "claude-x-1",
        "service_tier": None,
        "system_fingerprint": None,
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Let me see.",
                    "refusal": None,
                    "reasoning_content": "hm",
                    "tool_calls": [{"id": "t1", "type": "function", "function": function}],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 9,
            "total_tokens": 14,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }
    assert (chunk.usage, chunk.finish_reason, chunk.is_done) == (Usage(5, 2, output_tokens=9), "tool_calls", True)
    assert chunk.output_characters == len("Let me see.") + len("hm") + len("f") + len('{"a":1}')


COUNTED = b'{"type":"message","usage":{"input_tokens":7,"output_tokens":2}}'
NO_MESSAGES: list[tuple[bytes, type[BackendError], Usage | None, int]] = [
    (b"", UnreadableAnswer, None, 0),
    (b"<html>", UnreadableAnswer, None, 0),
    (b"[]", UnreadableAnswer, None, 0),
    (b"{}", UnreadableAnswer, None, 2),
    (b'{"content":[{"type":"text","text":"cut', UnreadableAnswer, None, 38),
    (COUNTED, UnreadableAnswer, Usage(input_tokens=7, output_tokens=2), len(COUNTED)),
    (b'{"type":"error","error":{"type":"api_error"}}', UpstreamUnavailable, None, 0),
]


@pytest.mark.parametrize(("body", "kind", "usage", "characters"), NO_MESSAGES)
@pytest.mark.parametrize("read", [partial(read_message, created=0), read_native_message])
def test_what_is_no_message_may_be_asked_of_another(
    read: Callable[..., Chunk], body: bytes, kind: type[BackendError], usage: Usage | None, characters: int
) -> None:
    with pytest.raises(UpstreamUnavailable) as caught:
        read(body, backend="b")
    assert type(caught.value) is kind, "what a provider calls its own failure is not billed"
    if isinstance(caught.value, UnreadableAnswer):
        assert (caught.value.usage, caught.value.output_characters) == (usage, characters)


def block(index: int, **content: object) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": content}


def delta(index: int, **content: object) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": content}


START: Json = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "model": "claude-x-1",
        "usage": {
            "input_tokens": 3,
            "cache_read_input_tokens": 2,
            "cache_creation_input_tokens": 0,
            "output_tokens": 1,
        },
    },
}
STOP: Json = {"type": "message_stop"}
EVENTS: list[Json] = [
    START,
    {"type": "ping"},
    block(0, type="thinking", thinking=""),
    delta(0, type="thinking_delta", thinking="hm"),
    delta(0, type="signature_delta", signature="s"),
    {"type": "content_block_stop", "index": 0},
    block(1, type="text", text=""),
    delta(1, type="text_delta", text="Let me"),
    block(2, type="tool_use", id="t1", name="f", input={}),
    delta(2, type="input_json_delta", partial_json=""),
    delta(2, type="input_json_delta", partial_json='{"a":'),
    delta(2, type="input_json_delta", partial_json="1}"),
    block(3, type="tool_use", id="t2", name="g", input={}),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use"},
        "usage": {"input_tokens": None, "output_tokens": 9},
    },
    {"type": "something_new"},
    STOP,
]


def read(events: list[Json], *, wants_usage: bool = True) -> list[Chunk]:
    reader = AnthropicStreamReader("b", wants_usage_chunk=wants_usage, created=7)
    return [chunk for event in events for chunk in reader.read(json.dumps(event).encode())]


def test_a_stream_as_chat_chunks() -> None:
    chunks = read(EVENTS)
    documents = [json.loads(chunk.payload[6:]) for chunk in chunks[:-1]]
    assert {(d["id"], d["model"], d["created"]) for d in documents} == {("msg_1", "claude-x-1", 7)}
    deltas = [document["choices"][0]["delta"] for document in documents if document["choices"]]
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"content": "Let me"},
        {"tool_calls": [{"index": 0, "id": "t1", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]},
        {"tool_calls": [{"index": 1, "id": "t2", "type": "function", "function": {"name": "g", "arguments": ""}}]},
        {},
    ]
    [finish, usage] = [chunk for chunk in chunks if chunk.usage]
    assert finish.usage == usage.usage == Usage(5, 2, output_tokens=9)  # known at once, as the stream may break off
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == [finish.finish_reason] == ["tool_calls"]
    assert [chunk.usage_so_far for chunk in chunks if chunk.usage_so_far] == [Usage(5, 2, output_tokens=1)]
    assert documents[-1]["usage"]["total_tokens"] == 14
    assert chunks[-1].is_done
    assert chunks[-1].payload == b"data: [DONE]\n\n"


@pytest.mark.parametrize("times", [0, 2])
def test_a_chat_is_told_once_why_it_ended_however_often_the_stream_says_so(times: int) -> None:
    ends = [event for event in EVENTS if event["type"] == "message_delta"]
    events = [event for event in EVENTS if event not in (*ends, STOP)]
    chunks = read([*events, *ends * times, STOP])
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["tool_calls"]
    assert chunks[-1].is_done


@pytest.mark.parametrize(("begun_with", "arguments"), [({}, "{}"), ({"a": 1}, '{"a":1}'), (None, "{}")])
def test_a_call_that_streams_no_arguments_has_those_it_began_with(begun_with: object, arguments: str) -> None:
    events: list[Json] = [
        block(0, type="tool_use", id="t1", name="f", input=begun_with),
        delta(0, type="input_json_delta", partial_json=""),
        {"type": "content_block_stop", "index": 0},
        block(1, type="text", text=""),
        {"type": "content_block_stop", "index": 1},
    ]
    documents = [json.loads(chunk.payload[6:]) for chunk in read([START, *events])]
    calls = [call for document in documents for call in document["choices"][0]["delta"].get("tool_calls", [])]
    assert "".join(call["function"]["arguments"] for call in calls) == arguments


def test_the_usage_chunk_is_hidden_from_who_did_not_ask() -> None:
    [_, chunk] = [chunk for chunk in read(EVENTS, wants_usage=False) if chunk.usage]
    assert chunk.payload == b""


ERROR: Json = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
THOUGHT = block(0, type="thinking", thinking="")  # which Claude may not show
chat_reader = partial(AnthropicStreamReader, wants_usage_chunk=True, created=0)
BREAKS: list[tuple[list[Json | bytes], type[BackendError]]] = [
    ([ERROR], RateLimited),
    ([START, block(0, type="text", text=""), ERROR], RateLimited),  # nothing was said yet
    ([START, THOUGHT, ERROR], StreamBroken),
    ([START, delta(0, type="text_delta", text="x"), ERROR], StreamBroken),
    ([b"{"], UnreadableAnswer),
    ([START, b"{"], UnreadableAnswer),
    ([START, THOUGHT, b"7"], StreamBroken),
    ([], UnreadableAnswer),
    ([START], UnreadableAnswer),
    ([START, THOUGHT], StreamBroken),
    ([STOP], UnreadableAnswer),
]
ENDLESS: list[tuple[list[Json | bytes], type[BackendError]]] = [  # more calls than are remembered
    ([START, *(block(place, type="tool_use") for place in range(MOST_CALLS + 1))], StreamBroken),
    ([START, *[block(0, type="tool_use", input="x" * (MOST_INPUT_CHARACTERS // 2))] * 3], StreamBroken),
]


@pytest.mark.parametrize(
    ("make", "events", "kind"),
    [
        *((chat_reader, *one) for one in [*BREAKS, *ENDLESS]),
        *((NativeMessagesReader, *one) for one in BREAKS),
    ],
)
def test_breaks(make: Callable[[str], StreamReader], events: list[Json | bytes], kind: type[BackendError]) -> None:
    reader = make("b")

    def run() -> None:
        for event in events:
            reader.read(event if isinstance(event, bytes) else json.dumps(event).encode())
        reader.end()

    with pytest.raises(BackendError) as caught:
        run()
    assert type(caught.value) is kind
    assert not reader.is_done


def test_the_native_stream_keeps_every_event_and_meters_it() -> None:
    reader = NativeMessagesReader("b")
    datas = [json.dumps(event).encode() for event in EVENTS]
    chunks = [chunk for data in datas for chunk in reader.read(data)]
    assert [chunk.payload for chunk in chunks] == [
        b"event: " + cast(str, event["type"]).encode() + b"\ndata: " + data + b"\n\n"
        for event, data in zip(EVENTS, datas, strict=True)
    ]
    assert [chunk.usage for chunk in chunks if chunk.usage] == [Usage(5, 2, output_tokens=9)]
    assert [chunk.usage_so_far for chunk in chunks if chunk.usage_so_far] == [Usage(5, 2, output_tokens=1)]
    assert sum(chunk.output_characters for chunk in chunks) == len("hm" + "Let me" + "f" + '{"a":1}' + "g")
    assert [chunk.is_done for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


@pytest.mark.parametrize(
    "reader", [AnthropicStreamReader("b", wants_usage_chunk=True, created=0), NativeMessagesReader("b")]
)
def test_an_answer_that_begins_inside_another_is_not_joined_to_it(reader: StreamReader) -> None:
    for event in (START, START, *EVENTS[1:-2]):
        reader.read(json.dumps(event).encode())
    with pytest.raises(StreamBroken):
        reader.read(b'{"type":"message_start","message":{"id":"msg_2"}}')


def test_a_native_message_is_untouched_and_metered() -> None:
    body = json.dumps(MESSAGE, indent=2).encode()
    chunk = read_native_message(body, backend="b")
    assert (chunk.payload, chunk.usage, chunk.finish_reason) == (body, Usage(5, 2, output_tokens=9), "tool_calls")


def test_errors_take_openais_shape() -> None:
    body = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}).encode()
    assert json.loads(openai_error(body)) == {
        "error": {"message": "no", "type": "invalid_request_error", "param": None, "code": None}
    }
    for strange in (b"", b"[]", b"{}", b'{"error":7}'):
        assert json.loads(openai_error(strange))["error"]["type"] == "invalid_request_error"


KINDS = ["message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "ping", "x"]
ANY = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
NAMES = st.sampled_from(
    ["text", "thinking", "partial_json", "type", "id", "usage", "stop_reason", "input_tokens", "output_tokens"]
)
KINDS_OF_BLOCK = st.sampled_from(["tool_use", "text"])
INNER = (
    st.fixed_dictionaries({"type": KINDS_OF_BLOCK, "partial_json": st.just("{")})
    | ANY
    | st.dictionaries(NAMES, ANY | st.dictionaries(NAMES, ANY, max_size=3), max_size=4)
)
EVENT = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={"index": ANY, "message": INNER, "delta": INNER, "content_block": INNER, "usage": INNER},
)


@settings(max_examples=55)
@given(st.lists(EVENT, max_size=6))
def test_no_event_crashes_either_reader(events: list[Json]) -> None:
    for reader in (AnthropicStreamReader("b", wants_usage_chunk=True, created=0), NativeMessagesReader("b")):
        for event in events:
            try:
                reader.read(json.dumps(event).encode())
            except BackendError:
                break
