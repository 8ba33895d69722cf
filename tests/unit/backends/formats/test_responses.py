"""The Responses API, passed through and metered."""

import json
from typing import cast

import pytest

from backends.errors import (
    BackendError,
    RateLimited,
    StreamBroken,
    UnreadableAnswer,
    Untranslatable,
    UpstreamRejected,
    UpstreamUnavailable,
)
from backends.formats.responses import ResponsesStreamReader, needs_its_provider, read_response
from backends.formats.responses_chat import read_response_as_chat
from backends.openai_compatible import OPENAI_PATHS, OpenAICompatibleBackend
from backends.protocol import Call, Chunk
from backends.usage import Usage
from tests.scripted_provider import Raw, ScriptedProvider

Json = dict[str, object]
RESPONSE: Json = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "output": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "hello"}]},
    ],
    "service_tier": "flex",
    "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3, "total_tokens": 12},
}
USAGE = Usage(9, 4, output_tokens=3, service_tier="flex")
EVENTS: list[Json] = [
    {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}},
    {"type": "response.reasoning_summary_text.delta", "delta": "hm"},
    {"type": "response.output_text.delta", "delta": "hello"},
    {"type": "response.output_text.done", "text": "hello"},
    {"type": "response.completed", "response": RESPONSE},
]


def read(events: list[Json]) -> list[Chunk]:
    reader = ResponsesStreamReader("b")
    return [chunk for event in events for chunk in reader.read(json.dumps(event).encode())]


def test_a_stream_keeps_every_event_and_is_metered() -> None:
    chunks = read(EVENTS)
    assert [chunk.payload for chunk in chunks] == [
        b"event: " + cast(str, event["type"]).encode() + b"\ndata: " + json.dumps(event).encode() + b"\n\n"
        for event in EVENTS
    ]
    assert [chunk.output_characters for chunk in chunks] == [0, 2, 5, 0, 0]
    assert [chunk.has_output for chunk in chunks] == [False, True, True, False, False]
    assert (chunks[-1].usage, chunks[-1].finish_reason, chunks[-1].is_done) == (USAGE, "stop", True)


SEARCH: Json = {"type": "web_search_call", "id": "ws_1", "status": "in_progress"}


def test_a_hosted_tools_call_is_output_so_that_its_progress_is_seen_while_it_runs() -> None:
    begun: list[Json] = [
        {"type": "response.output_item.added", "item": {"type": "reasoning"}},
        {"type": "response.output_item.added", "item": SEARCH},
        {"type": "response.web_search_call.searching"},
        {"type": "response.output_item.added", "item": {"type": "message", "content": []}},
    ]
    chunks = read([EVENTS[0], *begun, EVENTS[-1]])
    assert [chunk.has_output for chunk in chunks] == [False, False, True, False, False, True]
    assert chunks[-1].output_characters == 7


@pytest.mark.parametrize(
    ("item", "expected"), [(SEARCH, True), ({"type": "reasoning", "summary": []}, False), ({"type": ["message"]}, True)]
)
def test_a_response_without_text_has_output_where_it_has_calls(item: Json, expected: bool) -> None:
    chunk = read_response(json.dumps(RESPONSE | {"output": [item]}).encode(), backend="b")
    assert (chunk.has_output, chunk.output_characters) == (expected, 0)


def test_a_response_is_untouched_and_metered() -> None:
    body = json.dumps(RESPONSE, indent=1).encode()
    chunk = read_response(body, backend="b")
    assert (chunk.payload, chunk.usage, chunk.finish_reason, chunk.output_characters) == (body, USAGE, "stop", 7)


FINISHES: list[tuple[Json, str | None]] = [
    ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
    ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
    ({"output": [{"type": "function_call", "arguments": "{}"}]}, "tool_calls"),
    ({"status": "queued"}, None),
]


@pytest.mark.parametrize(("fields", "expected"), FINISHES)
def test_finish_reasons(fields: Json, expected: str | None) -> None:
    assert read_response(json.dumps(RESPONSE | fields).encode(), backend="b").finish_reason == expected


def test_a_malformed_usage_is_flagged() -> None:
    chunk = read_response(json.dumps(RESPONSE | {"usage": {"input_tokens": -1}}).encode(), backend="b")
    assert (chunk.usage, chunk.is_usage_malformed) == (None, True)
    assert read_response(json.dumps(RESPONSE | {"usage": None}).encode(), backend="b").usage is None


SAID: Json = {"type": "response.output_text.delta", "delta": "hi"}
FAILED: Json = {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded"}}}
BREAKS: list[tuple[list[Json], type[BackendError]]] = [
    ([], UnreadableAnswer),
    ([FAILED], RateLimited),
    ([{"type": "error", "code": "server_error"}], UpstreamUnavailable),
    ([{"type": "response.failed", "response": {"error": {"code": "invalid_prompt"}}}], UpstreamRejected),
    ([{"type": "response.failed", "response": {"error": {"code": "image_too_large"}}}], UpstreamRejected),
    ([EVENTS[0], FAILED], RateLimited),  # nothing was said yet
    ([EVENTS[0], {"type": "error", "error": {"code": "context_length_exceeded"}}], Untranslatable),
    ([{"type": "bad\nname"}], UnreadableAnswer),
    ([EVENTS[0]], UnreadableAnswer),
    ([EVENTS[0], {"no": "type"}], UnreadableAnswer),
    ([EVENTS[0], SAID], StreamBroken),
    ([EVENTS[0], SAID, FAILED], StreamBroken),
    ([EVENTS[0], SAID, {"no": "type"}], StreamBroken),
]


@pytest.mark.parametrize(("events", "kind"), BREAKS)
def test_breaks(events: list[Json], kind: type[BackendError]) -> None:
    reader = ResponsesStreamReader("b")

    def run() -> None:
        for event in events:
            reader.read(json.dumps(event).encode())
        reader.end()

    with pytest.raises(BackendError) as caught:
        run()
    assert type(caught.value) is kind


def test_what_a_failed_response_consumed_is_known() -> None:
    failed = {"object": "response", "status": "failed", "error": {"code": "server_error"}, "usage": RESPONSE["usage"]}
    for read in (read_response, read_response_as_chat):
        with pytest.raises(UpstreamUnavailable) as caught:
            read(json.dumps(failed).encode(), backend="b")
        assert caught.value.usage == Usage(9, 4, output_tokens=3)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"object":"response","status":"failed","error":{"code":"server_error"}}']
)
def test_what_is_no_response(body: bytes) -> None:
    with pytest.raises(UpstreamUnavailable):
        read_response(body, backend="b")


STATE: list[tuple[Json, bool]] = [
    ({"input": "hi"}, False),
    ({"input": "hi", "tools": [{"type": "function", "name": "f"}]}, False),
    ({"input": "hi", "tools": [{"type": "web_search"}]}, True),
    ({"input": "hi", "previous_response_id": "resp_1"}, True),
    ({"input": "hi", "previous_response_id": None}, False),
    ({"input": "hi", "background": True}, True),
]


@pytest.mark.parametrize(("body", "expected"), STATE)
def test_state_keeps_a_call_with_its_provider(body: Json, expected: bool) -> None:
    assert needs_its_provider(json.dumps(body).encode()) is expected


async def test_through_the_adapter() -> None:
    stream = b"".join(chunk.payload for chunk in read(EVENTS))
    async with ScriptedProvider(Raw((stream,))) as provider:
        backend = OpenAICompatibleBackend("b", provider.base_url, None, paths=OPENAI_PATHS)
        sent = b'{"model":"auto","input":"hi","store":true,"stream":true}'
        reply = await backend.open(Call("responses", "gpt-x", sent, True, "r-1"))
        chunks = [chunk async for chunk in reply]
        await reply.aclose()
        await backend.aclose()
    assert b"".join(chunk.payload for chunk in chunks) == stream
    assert chunks[-1].usage == USAGE
    [request] = provider.received
    assert (request.path, request.body) == ("/v1/responses", sent.replace(b'"auto"', b'"gpt-x"'))
