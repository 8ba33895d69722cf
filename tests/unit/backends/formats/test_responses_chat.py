"""Answers of the Responses API as chats: whole, event by event, byte by byte, and cut anywhere."""

import json
from typing import Any, cast

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from backends.errors import (
    BackendError,
    RateLimited,
    StreamBroken,
    UnreadableAnswer,
    UpstreamRejected,
    UpstreamUnavailable,
)
from backends.formats.past_thinking import carry, detail_of
from backends.formats.responses_chat import ChatOfResponseReader, read_response_as_chat
from backends.http.sse import SseParser
from backends.http.stream_reader import MOST_CALLS
from backends.protocol import Chunk
from backends.usage import Usage
from tests.read_stream import read_stream

Json = dict[str, Any]
USAGE: Json = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
    "output_tokens": 8,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 17,
}
COUNTED = Usage(9, 4, 2, output_tokens=8, reasoning_tokens=5, service_tier="flex")
HEAD: Json = {
    "id": "resp_1",
    "object": "response",
    "created_at": 7,
    "model": "gpt-5.4-pro-2026-03-05",
    "status": "completed",
    "service_tier": "flex",
    "usage": USAGE,
}


def thought(*summary: str, encrypted: str | None = "gAAA") -> Json:
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"type": "reasoning", "id": "rs_1", "summary": parts, "encrypted_content": encrypted}


def said(text: str, **part: Any) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": [], **part}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": content}


def called(number: int, arguments: str = '{"n": 1}') -> Json:
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": "f",
        "arguments": arguments,
    }


def detail(place: int) -> Json:
    return detail_of(carry("gAAA", "b"), place)


def call(number: int, arguments: str = '{"n": 1}') -> Json:
    return {"id": f"call_{number}", "type": "function", "function": {"name": "f", "arguments": arguments}}


REFUSAL: Json = {"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]}
RUN: Json = {"type": "custom_tool_call", "call_id": "call_3", "name": "c", "input": "go"}
TOKEN: Json = {"token": "hi", "bytes": [104, 105], "logprob": -0.1, "top_logprobs": []}
UNKNOWN: Json = {"type": "of_a_kind_to_come", "id": "x_1"}
CUT: Json = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
FILTERED: Json = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
# (output, other members of the response, the chat's message, its finish reason)
ANSWERS: list[tuple[list[Json], Json, Json, str]] = [
    ([said("hello")], {}, {"content": "hello"}, "stop"),
    ([], {}, {"content": ""}, "stop"),
    (
        [thought("First.", "Then."), said("hello")],
        {},
        {"content": "hello", "reasoning_content": "First.\n\nThen.", "reasoning_details": [detail(0)]},
        "stop",
    ),
    ([thought(encrypted=None), said("hello")], {}, {"content": "hello"}, "stop"),
    (
        [thought(), called(1), thought("hm"), called(2, "")],
        {},
        {
            "content": None,
            "tool_calls": [call(1), call(2, "{}")],
            "reasoning_content": "hm",
            "reasoning_details": [detail(0), detail(2)],
        },
        "tool_calls",
    ),
    ([said("let me see"), called(1)], {}, {"content": "let me see", "tool_calls": [call(1)]}, "tool_calls"),
    ([said("one"), UNKNOWN, said("two")], {}, {"content": "one\n\ntwo"}, "stop"),
    ([REFUSAL], {}, {"content": None, "refusal": "I will not."}, "stop"),
    (
        [RUN],
        {},
        {"content": None, "tool_calls": [{"id": "call_3", "type": "custom", "custom": {"name": "c", "input": "go"}}]},
        "tool_calls",
    ),
    ([said("hel")], CUT, {"content": "hel"}, "length"),
    ([thought()], CUT, {"content": "", "reasoning_details": [detail(0)]}, "length"),
    ([called(1, '{"n"')], CUT, {"content": None, "tool_calls": [call(1, '{"n"')]}, "length"),
    ([said("hel")], FILTERED, {"content": "hel"}, "content_filter"),
]


@pytest.mark.parametrize(("output", "changes", "message", "finish"), ANSWERS)
def test_a_whole_answer(output: list[Json], changes: Json, message: Json, finish: str) -> None:
    response = HEAD | {"output": output} | changes
    chunk = read_response_as_chat(json.dumps(response).encode(), backend="b")
    document = json.loads(chunk.payload)
    whole = {"role": "assistant", "refusal": None} | message
    assert document == {
        "id": "resp_1",
        "object": "chat.completion",
        "created": 7,
        "model": "gpt-5.4-pro-2026-03-05",
        "service_tier": "flex",
        "system_fingerprint": None,
        "choices": [{"index": 0, "message": whole, "logprobs": None, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 8,
            "total_tokens": 17,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 5},
        },
    }
    assert ChatCompletion.model_validate(document, strict=True)
    assert (chunk.usage, chunk.finish_reason, chunk.is_done) == (COUNTED, finish, True)
    assert chunk.has_output is bool(output and output != [thought()])


def test_the_probabilities_of_tokens_are_the_chats() -> None:
    body = json.dumps(HEAD | {"output": [said("hi", logprobs=[TOKEN])]}).encode()
    [choice] = json.loads(read_response_as_chat(body, backend="b").payload)["choices"]
    assert choice["logprobs"] == {"content": [TOKEN], "refusal": None}


def test_usage_that_cannot_be_believed_counts_as_none() -> None:
    for usage, is_malformed in ((None, False), ({"input_tokens": -1}, True)):
        body = json.dumps(HEAD | {"output": [said("hi")], "usage": usage}).encode()
        chunk = read_response_as_chat(body, backend="b")
        assert (chunk.usage, chunk.is_usage_malformed) == (None, is_malformed)
        assert "usage" not in json.loads(chunk.payload)


NO_ANSWERS: list[tuple[Json, type[BackendError]]] = [
    ({}, UnreadableAnswer),
    (HEAD | {"object": "chat.completion"}, UnreadableAnswer),
    (HEAD | {"status": "in_progress", "output": []}, UnreadableAnswer),
    (HEAD | {"status": "failed", "error": {"code": "server_error", "message": "x"}}, UpstreamUnavailable),
    (HEAD | {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "x"}}, RateLimited),
    (HEAD | {"status": "failed", "error": {"code": "invalid_prompt", "message": "x"}}, UpstreamRejected),
    (HEAD | {"status": "failed", "error": {"code": "image_too_large", "message": "x"}}, UpstreamRejected),
]


@pytest.mark.parametrize(("body", "kind"), NO_ANSWERS)
def test_what_is_no_answer(body: Json, kind: type[BackendError]) -> None:
    with pytest.raises(BackendError) as caught:
        read_response_as_chat(json.dumps(body).encode(), backend="b")
    assert type(caught.value) is kind


def events_of(output: list[Json], changes: Json) -> list[Json]:
    """A response's events as OpenAI streams them."""
    response = HEAD | {"output": output} | changes
    events: list[Json] = [
        {"type": "response.created", "response": HEAD | {"status": "in_progress", "output": [], "usage": None}},
        {"type": "response.in_progress", "response": HEAD | {"status": "in_progress", "output": [], "usage": None}},
    ]
    for place, item in enumerate(output):
        at = {"output_index": place, "item_id": item.get("id")}
        begun = {
            name: "" if name in ("arguments", "input", "encrypted_content") else value for name, value in item.items()
        }
        begun |= {name: [] for name in ("content", "summary") if name in item}
        events.append({"type": "response.output_item.added", "output_index": place, "item": begun})
        for number, part in enumerate(item.get("summary", [])):
            where = at | {"summary_index": number}
            events.append({"type": "response.reasoning_summary_part.added", **where, "part": part | {"text": ""}})
            for piece in halves(part["text"]):
                events.append({"type": "response.reasoning_summary_text.delta", **where, "delta": piece})  # noqa: PERF401
        for number, part in enumerate(item.get("content", [])):
            kind = "response.refusal.delta" if part["type"] == "refusal" else "response.output_text.delta"
            for piece in halves(part.get("text") or part["refusal"]):
                events.append({"type": kind, **at, "content_index": number, "delta": piece, "logprobs": []})  # noqa: PERF401
        for name, kind in (("arguments", "function_call_arguments"), ("input", "custom_tool_call_input")):
            for piece in halves(item.get(name, "")):
                events.append({"type": f"response.{kind}.delta", **at, "delta": piece})  # noqa: PERF401
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    return [*events, {"type": f"response.{response['status']}", "response": response}]


def halves(text: str) -> list[str]:
    return [piece for piece in (text[: len(text) // 2], text[len(text) // 2 :]) if piece]


def wire(events: list[Json]) -> bytes:
    return b"".join(f"event: {event.get('type')}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def joined(chunks: list[Chunk]) -> tuple[Json, str | None]:
    """(the message assembled by a client, its finish reason)."""
    message: Json = {}
    calls: dict[int, Json] = {}
    finish: str | None = None
    parser = SseParser()
    for data in (data for chunk in chunks for data in parser.receive(chunk.payload)):
        if data == b"[DONE]":
            continue
        document = json.loads(data)
        if b'"custom"' not in data:  # the client's types lack it in a stream
            assert ChatCompletionChunk.model_validate(document)
        for choice in document["choices"]:
            delta = choice["delta"]
            for name in ("content", "reasoning_content", "refusal"):
                if name in delta:
                    message[name] = message.get(name, "") + delta[name]
            message.setdefault("reasoning_details", []).extend(delta.get("reasoning_details", []))
            for piece in delta.get("tool_calls", []):
                call = calls.setdefault(piece["index"], {name: piece[name] for name in ("id", "type") if name in piece})
                kind = cast(str, call["type"])
                for name, text in piece[kind].items():
                    call.setdefault(kind, {})[name] = call.setdefault(kind, {}).get(name, "") + text
            finish = choice["finish_reason"] or finish
    return message | {"tool_calls": [calls[index] for index in sorted(calls)]}, finish


@pytest.mark.parametrize("bytewise", [False, True])
@pytest.mark.parametrize(("output", "changes", "message", "finish"), ANSWERS)
def test_a_stream_says_the_same(output: list[Json], changes: Json, message: Json, finish: str, bytewise: bool) -> None:
    data = wire(events_of(output, changes))
    pieces = [data[place : place + 1] for place in range(len(data))] if bytewise else [data]
    chunks, end = read_stream(ChatOfResponseReader("b", wants_usage_chunk=False), pieces)
    expected = {"content": "", "reasoning_details": [], "tool_calls": []} | message
    assert joined(chunks) == (expected | {"content": message["content"] or ""}, finish)
    assert end == "done"
    assert [chunk.usage for chunk in chunks if chunk.usage] == [COUNTED]
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == [finish]
    assert [chunk.is_done for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    plain = read_response_as_chat(json.dumps(HEAD | {"output": output} | changes).encode(), backend="b")
    assert sum(chunk.output_characters for chunk in chunks) == plain.output_characters
    assert not any(b'"usage"' in chunk.payload for chunk in chunks)


def test_who_asks_for_it_is_told_the_usage() -> None:
    data = wire(events_of([said("hello")], {}))
    chunks, _ = read_stream(ChatOfResponseReader("b", wants_usage_chunk=True), [data])
    [told] = [chunk for chunk in chunks if chunk.usage]
    assert json.loads(told.payload[6:])["usage"]["completion_tokens_details"] == {"reasoning_tokens": 5}


def test_a_stream_may_leave_pieces_and_places_out() -> None:
    """Other servers do."""
    events: list[Json] = [
        {"type": "response.output_item.done", "output_index": 0, "item": called(1)},
        {"type": "response.reasoning_text.delta", "delta": "hm"},
        {"type": "response.output_text.delta", "delta": "hi", "logprobs": [TOKEN]},
        {"type": "response.function_call_arguments.delta", "output_index": 9, "delta": "{}"},
        {"type": "keepalive"},
        {"type": "response.completed", "response": HEAD | {"output": [], "usage": None}},
    ]
    chunks, end = read_stream(ChatOfResponseReader("b", wants_usage_chunk=True), [wire(events)])
    message = {"content": "hi", "reasoning_content": "hm", "reasoning_details": [], "tool_calls": [call(1)]}
    assert (joined(chunks), end) == ((message, "tool_calls"), "done")
    assert not any(chunk.usage for chunk in chunks)
    assert any(json.dumps(TOKEN, separators=(",", ":")).encode() in chunk.payload for chunk in chunks)


WHOLE = wire(events_of([thought("hm"), said("hello"), called(1)], {}))
FAILED: Json = {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded"}}}
BEGUN = events_of([said("hello")], {})
CALL_BEGUN: Json = {"type": "response.output_item.added", "item": {"type": "function_call"}}
BREAKS: list[tuple[list[Json], type[BackendError]]] = [
    ([], UnreadableAnswer),
    ([FAILED], RateLimited),
    ([{"type": "error", "code": "server_error"}], UpstreamUnavailable),
    ([{"type": "error", "error": {"code": "server_error"}}], UpstreamUnavailable),
    # nothing was sent to the caller yet, so another backend can be tried
    ([*BEGUN[:3], FAILED], RateLimited),
    (BEGUN[:3], UnreadableAnswer),
    ([*BEGUN[:4], FAILED], StreamBroken),
    ([*BEGUN[:4], {"no": "type"}], StreamBroken),
    (BEGUN[:-1], StreamBroken),
    # endless: more calls than are remembered
    ([{**CALL_BEGUN, "output_index": place} for place in range(MOST_CALLS + 1)], StreamBroken),
]


@pytest.mark.parametrize(("events", "kind"), BREAKS)
def test_breaks(events: list[Json], kind: type[BackendError]) -> None:
    chunks, end = read_stream(ChatOfResponseReader("b", wants_usage_chunk=True), [wire(events)])
    assert end == kind.__name__
    assert not any(chunk.is_done for chunk in chunks)


@pytest.mark.parametrize("length", range(0, len(WHOLE) - 2, 7))
def test_cut_anywhere_it_is_never_passed_off_as_complete(length: int) -> None:
    chunks, end = read_stream(ChatOfResponseReader("b", wants_usage_chunk=True), [WHOLE[:length]])
    assert end == ("StreamBroken" if chunks else "UnreadableAnswer")
    assert not any(chunk.is_done for chunk in chunks)


def test_what_follows_the_end_is_not_read() -> None:
    reader = ChatOfResponseReader("b", wants_usage_chunk=True)
    chunks, end = read_stream(reader, [WHOLE + b"data: garbage\n\n"])
    assert (end, chunks[-1].payload) == ("done", b"data: [DONE]\n\n")
