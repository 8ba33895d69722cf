"""Calls and answers passed through in Gemini's format: what is changed, and what is metered."""

import json
from typing import Any

import pytest

from backends.errors import RateLimited, StreamBroken, UnreadableAnswer, UpstreamUnavailable
from backends.formats.gemini_contents import (
    NativeContentReader,
    native_body,
    read_native_content,
    without_signatures,
)
from backends.formats.json_splice import NotAnObject
from backends.formats.past_thinking import UNKNOWN_SIGNATURE
from backends.formats.thought_signatures import seal_details
from backends.usage import Usage

Json = dict[str, Any]
METADATA: Json = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 2}
USAGE = Usage(10, output_tokens=7, reasoning_tokens=2)
CALL: Json = {"functionCall": {"name": "f", "args": {}}}
SEALED = seal_details([(0, "breakeven:openai:zzz")])


def answer(*parts: Json, reason: str | None = "STOP", **more: Any) -> bytes:
    candidate = {"content": {"parts": list(parts)}, **({"finishReason": reason} if reason else {})}
    return json.dumps({"candidates": [candidate | more], "usageMetadata": METADATA}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b'{ "contents" : [{"parts":[{"text":"h\\u00e9"}]}], "x":1.50}',
        b'{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f"},"thoughtSignature":"Eq=="},'
        b'{"functionCall":{}}]}]}',
        b'{"contents":[{"role":"model","parts":[{"function_call":{"name":"f"},"thought_signature":"Eq=="}]}]}',
        b'{"contents":[{"role":"model","parts":[{"functionCall":{},"thoughtSignature":"Eq=="}]},'
        b'{"role":"model","parts":[{"functionCall":{}}]}]}',
        b'{"contents":[{"role":"user","parts":[{"text":"\\"functionCall\\""}]}]}',
        b'{"contents":"functionCall"}',
    ],
)
def test_what_needs_no_change_is_left_as_it_is(body: bytes) -> None:
    assert native_body(body, counts=False, model="m") == body


def test_a_call_that_nobody_signed_is_signed_and_a_model_beside_the_address_goes() -> None:
    contents = [{"role": "model", "parts": [{"text": "x"}, CALL, CALL]}, {"role": "model", "parts": [{"text": "y"}]}]
    body = json.dumps({"model": "models/other", "contents": contents}).encode()
    sent = json.loads(native_body(body, counts=False, model="m"))
    signed = CALL | {"thoughtSignature": UNKNOWN_SIGNATURE}
    assert sent == {"contents": [{"role": "model", "parts": [{"text": "x"}, signed, CALL]}, contents[1]]}


def test_a_signature_of_ours_is_nobodys() -> None:
    parts = [{"text": "", "thoughtSignature": SEALED}, CALL | {"thought_signature": SEALED.replace("+", "-")}]
    body = json.dumps({"contents": [{"role": "model", "parts": parts}]}).encode()
    [content] = json.loads(native_body(body, counts=False, model="m"))["contents"]
    assert content["parts"] == [{"text": ""}, CALL | {"thoughtSignature": UNKNOWN_SIGNATURE}]


def test_a_count_names_its_model_inside() -> None:
    body = b'{"generateContentRequest":{"model":"models/a", "contents":[]} }'
    assert native_body(body, counts=True, model="m") == body.replace(b"models/a", b"models/m")
    assert native_body(body, counts=False, model="m") == body


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"contents":[],"contents":[]}'])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(NotAnObject):
        native_body(body, counts=False, model="m")


def test_a_whole_answer() -> None:
    body = answer({"text": "hi"}, CALL)
    chunk = read_native_content(body, backend="b", model="m")
    assert (chunk.payload, chunk.usage, chunk.finish_reason, chunk.is_done) == (body, USAGE, "tool_calls", True)
    assert (chunk.has_output, chunk.output_characters) == (True, 5)
    blocked = b'{"promptFeedback":{"blockReason":"SAFETY"}}'
    chunk = read_native_content(blocked, backend="b", model="m")
    assert (chunk.payload, chunk.finish_reason, chunk.has_output) == (blocked, "content_filter", False)
    picture = read_native_content(answer({"inlineData": {"mimeType": "image/png"}}), backend="b", model="m")
    assert picture.has_output


def test_no_answer() -> None:
    with pytest.raises(UnreadableAnswer):
        read_native_content(answer({"text": "hi"}, reason=None), backend="b", model="m")
    with pytest.raises(UpstreamUnavailable):
        read_native_content(b'{"error":{"code":503,"message":"x","status":"UNAVAILABLE"}}', backend="b", model="m")


@pytest.mark.parametrize(
    ("model", "queries", "searches"),
    [
        ("gemini-3.8-flash", ["", "a", "b", "a", ""], 2),
        ("gemini-2.5-flash", ["a", "b"], 1),
        ("gemini-2.0-flash", [], 0),
        ("gemini-20", ["a", "b"], 2),
    ],
)
def test_searches_are_counted_as_google_bills_them(model: str, queries: list[str], searches: int) -> None:
    body = answer({"text": "hi"}, groundingMetadata={"webSearchQueries": queries})
    chunk = read_native_content(body, backend="b", model=model)
    assert chunk.usage is not None
    assert (chunk.usage.web_searches, chunk.usage.other_tool_calls) == (searches, 0)
    mapped = answer({"text": "hi"}, groundingMetadata={"groundingChunks": [{"maps": {}}, {"maps": {}}]})
    usage = read_native_content(mapped, backend="b", model=model).usage
    assert usage is not None
    assert usage.other_tool_calls == 1


def test_a_stream() -> None:
    reader = NativeContentReader("b", "gemini-3")
    grounded = {"groundingMetadata": {"webSearchQueries": ["q"]}}
    events = [answer({"text": "h"}, reason=None, **grounded), answer(CALL, reason=None), answer({"text": ""})]
    chunks = [chunk for event in events for chunk in reader.read(event)]
    assert [chunk.payload for chunk in chunks] == [b"data: %b\n\n" % event for event in events]
    assert [chunk.output_characters for chunk in chunks] == [1, 3, 0]
    assert [chunk.finish_reason for chunk in chunks] == [None, None, "tool_calls"]
    assert chunks[0].usage_so_far == Usage(10, output_tokens=7, reasoning_tokens=2, web_searches=1)
    [last] = reader.end()
    assert (last.payload, last.is_done) == (b"", True)
    assert last.usage == Usage(10, output_tokens=7, reasoning_tokens=2, web_searches=1)


def test_a_stream_that_does_not_end() -> None:
    reader = NativeContentReader("b", "m")
    with pytest.raises(UnreadableAnswer):
        reader.end()
    with pytest.raises(UnreadableAnswer):
        reader.read(b"{")
    reader.read(answer({"text": ""}, reason=None))
    with pytest.raises(RateLimited):
        reader.read(b'{"error":{"code":429,"message":"x","status":"RESOURCE_EXHAUSTED"}}')
    reader.read(answer({"text": "h"}, reason=None))
    with pytest.raises(StreamBroken):
        reader.end()
    with pytest.raises(StreamBroken):
        reader.read(b'{"error":{"code":503,"message":"x","status":"UNAVAILABLE"}}')


def test_a_part_that_stands_alone_is_signed_too() -> None:
    body = json.dumps({"contents": [{"role": "model", "parts": CALL}]}).encode()
    [content] = json.loads(native_body(body, counts=False, model="m"))["contents"]
    assert content["parts"] == {**CALL, "thoughtSignature": UNKNOWN_SIGNATURE}


@pytest.mark.parametrize("contents", [b"7", b'[ {"parts":{"text":"x"}}]', b'["\\x"]'])
def test_contents_without_signatures_keep_their_bytes(contents: bytes) -> None:
    for body in (b'{"contents":%b}' % contents, b'{"content":%b}' % contents):
        assert without_signatures(body) == body


def test_signatures_are_left_out_in_either_spelling() -> None:
    said = {"role": "model", "parts": [{"text": "x", "thought_signature": "a"}, CALL | {"thoughtSignature": "b"}, CALL]}
    [content] = json.loads(without_signatures(json.dumps({"contents": [said]}).encode()))["contents"]
    assert content["parts"] == [{"text": "x"}, CALL | {"thoughtSignature": UNKNOWN_SIGNATURE}, CALL]
