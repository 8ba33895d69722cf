"""Chat bodies in Anthropic's words, and its answers in OpenAI's."""

import json
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.anthropic_format import (
    DEFAULT_MAX_TOKENS,
    AnthropicStreamReader,
    build_messages_body,
    openai_error,
    parse_messages_usage,
    read_message,
)
from backends.anthropic_messages import NativeMessagesReader, read_native_message
from backends.chat_view import parse_chat
from backends.errors import BackendError, RateLimited, StreamBroken, UpstreamRejected, UpstreamUnavailable
from backends.protocol import Call, Chunk
from backends.usage import Usage
from backends.usage_wire import MalformedUsage

Json = dict[str, object]
HI = [{"role": "user", "content": "hi"}]
HI_SAID = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
PNG = "data:image/png;base64,iVBORw0KGgo="
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def translate(body: Json, *, stream: bool = False) -> Json:
    raw = json.dumps({"messages": HI} | body).encode()
    call = Call("chat.completions", "claude-x", raw, stream, "r-1")
    return cast(Json, json.loads(build_messages_body(parse_chat(raw), call)))


def test_the_least_body() -> None:
    assert translate({}) == {"model": "claude-x", "max_tokens": DEFAULT_MAX_TOKENS, "messages": HI_SAID}


TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
FIELDS: list[tuple[Json, Json]] = [
    ({"max_tokens": 5}, {"max_tokens": 5}),
    ({"max_completion_tokens": 6, "max_tokens": 5}, {"max_tokens": 6}),
    ({"temperature": 1.7, "top_p": 0.5}, {"temperature": 1, "top_p": 0.5}),
    ({"temperature": 0}, {"temperature": 0}),
    ({"stop": "x"}, {"stop_sequences": ["x"]}),
    ({"stop": ["x", "y"]}, {"stop_sequences": ["x", "y"]}),
    ({"user": "u1"}, {"metadata": {"user_id": "u1"}}),
    ({"service_tier": "default"}, {"service_tier": "standard_only"}),
    ({"reasoning_effort": "high"}, {"output_config": {"effort": "high"}}),
    ({"thinking": {"type": "adaptive"}}, {"thinking": {"type": "adaptive"}}),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}},
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    ),
    (
        {"response_format": {"type": "json_object"}},
        {"system": [{"type": "text", "text": "Answer with one JSON object and nothing else."}]},
    ),
    ({"response_format": {"type": "text"}}, {}),
    ({"tools": [TOOL]}, {"tools": [{"name": "f", "description": "d", "input_schema": SCHEMA, "strict": True}]}),
    (
        {"functions": [{"name": "g"}], "tool_choice": "required"},
        {
            "tools": [{"name": "g", "input_schema": {"type": "object", "properties": {}}}],
            "tool_choice": {"type": "any"},
        },
    ),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": False},
        {
            "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA, "strict": True}],
            "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        },
    ),
    ({"tool_choice": "none"}, {"tool_choice": {"type": "none"}}),
]


@pytest.mark.parametrize(("body", "expected"), FIELDS)
def test_fields(body: Json, expected: Json) -> None:
    least = {"model": "claude-x", "max_tokens": DEFAULT_MAX_TOKENS, "messages": HI_SAID}
    assert translate(body) == least | expected


def test_stream_is_said() -> None:
    assert translate({}, stream=True)["stream"] is True


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


def ask(*parts: Json) -> Json:
    return {"messages": [{"role": "user", "content": list(parts)}]}


REFUSED: list[tuple[Json, str]] = [
    ({"n": 2}, "n"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"messages": []}, "messages"),
    ({"messages": 7}, "messages"),
    ({"messages": [7]}, "messages[0]"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    (ask({"type": "hologram"}), "messages[0].content[0].type"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///x"}}]}]},
        "messages[0].content[0]",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
        "messages[0].content[0].file",
    ),
    (
        {
            "messages": [
                {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}
            ]
        },
        "messages",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{"}}]}]},
        "messages[0].tool_calls[0].function.arguments",
    ),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
    ({"response_format": {"type": "yaml"}}, "response_format"),
]


@pytest.mark.parametrize(("body", "param"), REFUSED)
def test_what_cannot_be_said_is_refused_by_name(body: Json, param: str) -> None:
    with pytest.raises(UpstreamRejected) as caught:
        translate(body)
    assert json.loads(caught.value.body)["error"]["param"] == param
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "name",
    ["seed", "logit_bias", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs", "store", "verbosity"],
)
def test_what_only_tunes_the_answer_is_dropped(name: str) -> None:
    assert translate({name: 1}) == translate({})


USAGES: list[tuple[Json, Usage]] = [
    ({"input_tokens": 10, "output_tokens": 5}, Usage(10, output_tokens=5)),
    (
        {
            "input_tokens": 10,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 50,
            "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 30},
            "output_tokens": 5,
            "output_tokens_details": {"thinking_tokens": 4},
            "service_tier": "priority",
        },
        Usage(160, 100, 20, 30, 5, 4, service_tier="priority"),
    ),
    ({"input_tokens": 1, "cache_creation_input_tokens": 50, "output_tokens": 5}, Usage(51, 0, 50, output_tokens=5)),
    (
        {"input_tokens": 1, "cache_creation_input_tokens": None, "cache_creation": None, "output_tokens": 0},
        Usage(1),
    ),
]


@pytest.mark.parametrize(("wire", "expected"), USAGES)
def test_usage_is_normalised_so_that_cached_lies_inside_input(wire: Json, expected: Usage) -> None:
    assert parse_messages_usage(wire) == expected


BAD: list[object] = [
    None,
    [],
    {},
    {"input_tokens": 1},
    {"output_tokens": 1},
    {"input_tokens": -1, "output_tokens": 1},
    {"input_tokens": 1, "output_tokens": 2**63},
    {"input_tokens": "1", "output_tokens": 1},
    {"input_tokens": 1, "output_tokens": 1, "cache_creation": {"ephemeral_1h_input_tokens": 3}},
    {"input_tokens": 1, "output_tokens": 1, "output_tokens_details": {"thinking_tokens": 3}},
]


@pytest.mark.parametrize("wire", BAD)
def test_malformed_usage(wire: object) -> None:
    with pytest.raises(MalformedUsage):
        parse_messages_usage(wire)


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
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Let me see.",
                    "reasoning_content": "hm",
                    "tool_calls": [{"id": "t1", "type": "function", "function": function}],
                },
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


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"type":"error","error":{"type":"api_error"}}'])
def test_what_is_no_message_may_be_asked_of_another(body: bytes) -> None:
    with pytest.raises(UpstreamUnavailable):
        read_message(body, backend="b", created=0)
    with pytest.raises(UpstreamUnavailable):
        read_native_message(body, backend="b")


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
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["tool_calls"]
    assert [chunk.usage for chunk in chunks if chunk.usage] == [Usage(5, 2, output_tokens=9)]
    assert documents[-1]["usage"]["total_tokens"] == 14
    assert chunks[-1].is_done
    assert chunks[-1].payload == b"data: [DONE]\n\n"


def test_the_usage_chunk_is_hidden_from_who_did_not_ask() -> None:
    [chunk] = [chunk for chunk in read(EVENTS, wants_usage=False) if chunk.usage]
    assert chunk.payload == b""


ERROR: Json = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
BREAKS: list[tuple[list[Json | bytes], type[BackendError]]] = [
    ([ERROR], RateLimited),
    ([START, ERROR], StreamBroken),
    ([b"{"], UpstreamUnavailable),
    ([START, b"{"], StreamBroken),
    ([START, b"7"], StreamBroken),
    ([], UpstreamUnavailable),
    ([START], StreamBroken),
    ([STOP], UpstreamUnavailable),
]


@pytest.mark.parametrize(("events", "kind"), BREAKS)
def test_breaks(events: list[Json | bytes], kind: type[BackendError]) -> None:
    reader = AnthropicStreamReader("b", wants_usage_chunk=True, created=0)

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
    assert sum(chunk.output_characters for chunk in chunks) == len("hm" + "Let me" + "f" + '{"a":1}' + "g")
    assert [chunk.is_done for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


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


@settings(max_examples=120, deadline=None)
@given(st.lists(EVENT, max_size=6))
def test_no_event_crashes_either_reader(events: list[Json]) -> None:
    for reader in (AnthropicStreamReader("b", wants_usage_chunk=True, created=0), NativeMessagesReader("b")):
        for event in events:
            try:
                reader.read(json.dumps(event).encode())
            except BackendError:
                break
