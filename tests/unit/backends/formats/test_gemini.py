"""Chat bodies in Gemini's format, and its answers in OpenAI's."""

import json
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.errors import (
    BackendError,
    RateLimited,
    StreamBroken,
    UnreadableAnswer,
    UpstreamAuth,
    UpstreamRejected,
    UpstreamUnavailable,
)
from backends.formats.chat_chunks import Head
from backends.formats.chat_view import parse_chat
from backends.formats.gemini import (
    GeminiStreamReader,
    build_content_body,
    openai_error,
    read_content,
)
from backends.gemini import GeminiBackend
from backends.protocol import Call, Chunk
from backends.usage import Usage
from tests.scripted_provider import Raw, ScriptedProvider
from tests.unit.backends.formats.test_gemini_usage import METADATA, USAGE

Json = dict[str, object]
HI = [{"role": "user", "content": "hi"}]
LEAST: Json = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


UNNAMED = Head("a", "asked-for", 7)


def translate(body: Json) -> Json:
    raw = json.dumps({"messages": HI} | body).encode()
    return cast(Json, json.loads(build_content_body(parse_chat(raw), "m")))


FIELDS: list[tuple[Json, Json]] = [
    ({}, {}),
    (
        {"temperature": 1.5, "top_p": 0.5, "presence_penalty": 1, "frequency_penalty": 2, "seed": 7, "max_tokens": 9},
        {
            "generationConfig": {
                "temperature": 1.5,
                "topP": 0.5,
                "presencePenalty": 1,
                "frequencyPenalty": 2,
                "seed": 7,
                "maxOutputTokens": 9,
            }
        },
    ),
    ({"stop": "x"}, {"generationConfig": {"stopSequences": ["x"]}}),
    ({"response_format": {"type": "json_object"}}, {"generationConfig": {"responseMimeType": "application/json"}}),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}},
        {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}},
    ),
    ({"reasoning_effort": "minimal"}, {"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}}}),
    (
        {"reasoning_effort": "xhigh"},
        {"generationConfig": {"thinkingConfig": {"thinkingLevel": "high", "includeThoughts": True}}},
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}]},
        {"tools": [{"functionDeclarations": [{"name": "f", "description": "d", "parametersJsonSchema": SCHEMA}]}]},
    ),
    ({"tool_choice": "required"}, {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}),
    (
        {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}}},
    ),
]


@pytest.mark.parametrize(("body", "expected"), FIELDS)
def test_fields(body: Json, expected: Json) -> None:
    assert translate(body) == LEAST | expected


@pytest.mark.parametrize(
    "field",
    [{"logit_bias": {"1": 1}}, {"logprobs": True}, {"store": True}, {"user": "u"}, {"parallel_tool_calls": True}],
)
def test_what_only_tunes_the_answer_is_dropped(field: Json) -> None:
    assert translate(field) == LEAST


def test_a_conversation_with_tools_and_media() -> None:
    def call(call_id: str, **extra: object) -> Json:
        return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}, **extra}

    messages: list[Json] = [
        {"role": "system", "content": "be brief"},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
                {"type": "image_url", "image_url": {"url": "https://x/y.webp?z=1"}},
                {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
            ],
        },
        {
            "role": "assistant",
            "tool_calls": [call("c1", extra_content={"google": {"thought_signature": "sig"}}), call("c2")],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"sum": 2}'},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "user", "content": "and?"},
    ]
    said = translate({"messages": messages})
    assert said["systemInstruction"] == {"parts": [{"text": "be brief"}]}
    function = {"name": "f", "args": {"a": 1}}
    assert said["contents"] == [
        {
            "role": "user",
            "parts": [
                {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
                {"fileData": {"fileUri": "https://x/y.webp?z=1", "mimeType": "image/webp"}},
                {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}},
            ],
        },
        {
            "role": "model",
            "parts": [
                {"functionCall": function | {"id": "c1"}, "thoughtSignature": "sig"},
                {"functionCall": function | {"id": "c2"}, "thoughtSignature": "skip_thought_signature_validator"},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "c1", "name": "f", "response": {"sum": 2}}},
                {"functionResponse": {"id": "c2", "name": "f", "response": {"result": "two"}}},
                {"text": "and?"},
            ],
        },
    ]


def test_a_conversation_that_begins_with_a_call_gets_a_users_word_first() -> None:
    called = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}
    messages = [{"role": "system", "content": "s"}, called, {"role": "tool", "tool_call_id": "c", "content": "1"}]
    contents = cast(list[Json], translate({"messages": messages})["contents"])
    assert [content["role"] for content in contents] == ["user", "model", "user"]
    assert contents[0]["parts"] == [{"text": "Go on."}]


def test_a_tools_image_cannot_be_said() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
    with pytest.raises(UpstreamRejected):
        translate({"messages": [{"role": "tool", "tool_call_id": "c", "content": [image]}]})
    with pytest.raises(UpstreamRejected):
        translate({"messages": [{"role": "user", "content": ""}]})


def content(*parts: Json, finish: str | None = None, usage: object = None) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": list(parts)}}
    document: Json = {"candidates": [candidate], "modelVersion": "gemini-x", "responseId": "r"}
    if finish:
        candidate["finishReason"] = finish
    if usage is not None:
        document["usageMetadata"] = usage
    return document


THOUGHT: Json = {"text": "hm", "thought": True}
CALL: Json = {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "sig"}
CALL_SAID: Json = {
    "id": "call_a_0",
    "type": "function",
    "function": {"name": "f", "arguments": '{"a":1}'},
    "extra_content": {"google": {"thought_signature": "sig"}},
}


def read_one(document: Json) -> Chunk:
    return read_content(json.dumps(document).encode(), backend="b", unnamed=UNNAMED)


def test_an_answer_as_a_chat_answer() -> None:
    chunk = read_one(content(THOUGHT, {"text": "Let me see."}, CALL, finish="STOP", usage=METADATA))
    document = json.loads(chunk.payload)
    assert (document["id"], document["model"], document["created"]) == ("r", "gemini-x", 7)
    assert document["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Let me see.",
                "refusal": None,
                "reasoning_content": "hm",
                "tool_calls": [CALL_SAID],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ]
    assert (chunk.usage, chunk.finish_reason) == (USAGE, "tool_calls")


def test_an_answer_that_names_nothing_has_the_names_that_were_asked_for() -> None:
    nameless: Json = {"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}]}
    told = [read_one(nameless).payload, *(chunk.payload[6:] for chunk in read([nameless])[:-1])]
    assert {(one["id"], one["model"]) for one in map(json.loads, told)} == {("a", "asked-for")}


FINISHES: list[tuple[Json, str]] = [
    (content({"text": "x"}, finish="STOP"), "stop"),
    (content({"text": "x"}, finish="MAX_TOKENS"), "length"),
    (content(finish="SAFETY"), "content_filter"),
    (content(finish="MODEL_ARMOR"), "content_filter"),
    (content({"text": "x"}, finish="SOMETHING_NEW"), "content_filter"),
    ({"promptFeedback": {"blockReason": "SAFETY"}}, "content_filter"),
]


@pytest.mark.parametrize(("document", "expected"), FINISHES)
def test_finish_reasons(document: Json, expected: str) -> None:
    assert read_one(document).finish_reason == expected
    assert [chunk.finish_reason for chunk in read([document]) if chunk.finish_reason] == [expected]


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"])
def test_a_call_that_was_written_badly_is_no_answer(reason: str) -> None:
    last = content(CALL, finish=reason, usage=METADATA)
    for give_up in (lambda: read_one(last), lambda: read([last]), lambda: read([content({"text": "Let"}), last])):
        with pytest.raises((UnreadableAnswer, StreamBroken)) as caught:
            give_up()
        assert caught.value.usage == USAGE, "it is billed nevertheless"


def read(events: list[Json], *, wants_usage: bool = True) -> list[Chunk]:
    reader = GeminiStreamReader("b", wants_usage_chunk=wants_usage, unnamed=UNNAMED)
    return [chunk for event in events for chunk in reader.read(json.dumps(event).encode())] + reader.end()


def test_a_stream_as_chat_chunks() -> None:
    partial: Json = {"promptTokenCount": 10}
    events = [
        content(THOUGHT, usage=partial),
        content({"text": "Let"}),
        content(CALL, {"text": ""}, finish="STOP", usage=METADATA),
    ]
    chunks = read(events)
    documents = [json.loads(chunk.payload[6:]) for chunk in chunks[:-1]]
    assert [document["choices"][0]["delta"] for document in documents if document["choices"]] == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"content": "Let"},
        {"tool_calls": [CALL_SAID | {"index": 0}]},
        {},
    ]
    assert [chunk.usage for chunk in chunks if chunk.usage] == [USAGE]
    assert [chunk.usage_so_far for chunk in chunks if chunk.usage_so_far] == [Usage(10), Usage(10), USAGE]
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["tool_calls"]
    assert documents[-1]["usage"]["total_tokens"] == 38
    assert chunks[-1].is_done
    [hidden] = [chunk for chunk in read(events, wants_usage=False) if chunk.usage]
    assert hidden.payload == b""


def test_thoughts_that_are_not_told_are_counted_before_the_stream_ends() -> None:
    reader = GeminiStreamReader("b", wants_usage_chunk=True, unnamed=UNNAMED)
    reader.read(json.dumps(content({"text": "Let"})).encode())
    [silent] = reader.read(json.dumps(content({"text": ""}, usage=METADATA)).encode())
    assert silent == Chunk(b"", usage_so_far=USAGE)


BREAKS: list[tuple[list[bytes], type[BackendError]]] = [
    ([], UnreadableAnswer),
    ([b"{"], UnreadableAnswer),
    ([b"{}"], UnreadableAnswer),
    ([b'{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}'], RateLimited),
    ([json.dumps(content({"text": ""})).encode(), b'{"error":{"code":429}}'], RateLimited),
    ([json.dumps(content({"text": "x"})).encode()], StreamBroken),
    ([json.dumps(content({"text": "x"})).encode(), b"[]"], StreamBroken),
    ([json.dumps(content({"text": "x"})).encode(), b'{"error":{"code":500}}'], StreamBroken),
]


@pytest.mark.parametrize(("events", "kind"), BREAKS)
def test_breaks(events: list[bytes], kind: type[BackendError]) -> None:
    reader = GeminiStreamReader("b", wants_usage_chunk=True, unnamed=UNNAMED)

    def run() -> None:
        for event in events:
            reader.read(event)
        reader.end()

    with pytest.raises(BackendError) as caught:
        run()
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", UnreadableAnswer),
        (b"[]", UnreadableAnswer),
        (b"{}", UnreadableAnswer),
        (b'{"candidates":[{"cont', UnreadableAnswer),
        (b'{"candidates":[]}', UnreadableAnswer),
        (b'{"candidates":[{"content":{"parts":[{"text":"Hi"}]}}]}', UnreadableAnswer),
        (b'{"error":{"message":"no"}}', UpstreamUnavailable),
    ],
)
def test_what_is_no_answer_may_be_asked_of_another(body: bytes, kind: type[BackendError]) -> None:
    with pytest.raises(UpstreamUnavailable) as caught:
        read_content(body, backend="b", unnamed=UNNAMED)
    assert type(caught.value) is kind, "what a provider calls its own failure is not billed"


def test_what_is_no_answer_may_say_what_it_cost() -> None:
    body = b'{"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":2}}'
    with pytest.raises(UnreadableAnswer) as caught:
        read_content(body, backend="b", unnamed=UNNAMED)
    assert caught.value.usage == Usage(input_tokens=7, output_tokens=2)


def test_errors_take_openais_shape() -> None:
    body = b'{"error":{"code":400,"message":"no","status":"INVALID_ARGUMENT"}}'
    assert json.loads(openai_error(body))["error"] == {
        "message": "no",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_argument",
    }
    assert json.loads(openai_error(b"<html>"))["error"]["message"]


async def test_a_wrong_key_is_ours_and_the_model_is_quoted() -> None:
    body = b'{"error":{"code":400,"details":[{"reason":"API_KEY_INVALID"}]}}'
    async with ScriptedProvider(Raw((body,), status=400, headers={"content-type": "application/json"})) as provider:
        backend = GeminiBackend("b", f"{provider.origin}/v1beta", "key")
        with pytest.raises(UpstreamAuth):
            await backend.open(Call("chat.completions", "../x?y", json.dumps({"messages": HI}).encode(), False, "r-1"))
        with pytest.raises(UpstreamRejected):
            await backend.open(Call("embeddings", "m", b"{}", False, "r-1"))
        await backend.aclose()
    [request] = provider.received
    assert {name.lower(): value for name, value in request.headers.items()}["x-goog-api-key"] == "key"
    assert request.path == "/v1beta/models/../x?y:generateContent"  # decoded by the server from one quoted segment


ANY = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
PART = st.fixed_dictionaries(
    {},
    optional={
        "text": ANY,
        "thought": ANY,
        "functionCall": ANY | st.dictionaries(st.sampled_from(["id", "name", "args"]), ANY),
    },
)
CANDIDATE = st.fixed_dictionaries(
    {},
    optional={
        "finishReason": ANY,
        "content": ANY | st.fixed_dictionaries({"parts": ANY | st.lists(PART | ANY, max_size=3)}),
    },
)
EVENT = st.fixed_dictionaries(
    {},
    optional={"candidates": ANY | st.lists(CANDIDATE | ANY, max_size=2), "usageMetadata": ANY, "promptFeedback": ANY},
)


@settings(max_examples=70)
@given(st.lists(EVENT, max_size=4))
def test_no_event_crashes_the_reader(events: list[Json]) -> None:
    try:
        read(events)
        for event in events:
            read_one(event)
    except BackendError:
        return
