"""A stream that came though none was asked for, read as one answer."""

import json
from collections.abc import Mapping
from contextlib import aclosing

import pytest

from backends.endpoints.tool_call_deltas import MOST_CALLS
from backends.errors import RateLimited, UnreadableAnswer
from backends.openai_compatible import OPENAI_PATHS
from backends.protocol import Call, Chunk
from backends.unasked_streams import as_one_chat, as_one_response
from backends.usage import Usage
from tests import read_stream
from tests.scripted_provider import Raw, ScriptedProvider
from tests.unit.backends.openai_calls import make_backend, make_call

Json = dict[str, object]
DONE = b"data: [DONE]\n\n"


def events(*documents: Mapping[str, object]) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(document).encode() for document in documents)


def piece(delta: Json, finish: str | None = None, **others: object) -> Json:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish} | others]}


def call(index: int, arguments: str, **others: object) -> Json:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments} | others, "id": others.get("name")}]}


SAID = [
    piece({"role": "assistant", "content": ""}),
    piece({"reasoning_content": "hm"}),
    piece({"content": "Pa"}, logprobs={"content": [{"token": "Pa"}]}),
    piece({"content": "ris"}, logprobs={"content": [{"token": "ris"}]}),
    piece(call(0, '{"a"', name="f")),
    piece(call(0, ":1}")),
    piece(call(1, "{}", name="g")),
    piece({}, "tool_calls"),
    {"id": "c", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
]


async def answered(body: bytes, asked: Call) -> list[Chunk]:
    async with (
        ScriptedProvider(Raw((body,), headers={"content-type": "text/event-stream"})) as provider,
        aclosing(make_backend(provider, paths=OPENAI_PATHS)) as backend,
    ):
        return await read_stream.collect(backend, asked)


@pytest.mark.parametrize("start", [b"", b": hello\n\n", b"\xef\xbb\xbf", b"\n"])
async def test_a_chat(start: bytes) -> None:
    """Unsloth's server streams unless told not to (its #5047), Kaito's always (its #1880)."""
    [chunk] = await answered(start + events(*SAID) + DONE, make_call(stream=False))
    told = json.loads(chunk.payload)
    assert (told["object"], told["id"], told["model"]) == ("chat.completion", "c", "m")
    [choice] = told["choices"]
    assert choice["message"] == {
        "role": "assistant",
        "content": "Paris",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "f", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
            {"id": "g", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }
    assert choice["logprobs"] == {"content": [{"token": "Pa"}, {"token": "ris"}]}
    assert (chunk.finish_reason, chunk.usage, chunk.is_done) == ("tool_calls", Usage(3, output_tokens=2), True)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (events(*SAID[:-2]) + DONE, UnreadableAnswer),
        (events(*SAID[:2]) + b"data: {", UnreadableAnswer),
        (DONE, UnreadableAnswer),
        (events(SAID[0], {"error": {"code": 429, "message": "slow"}}), RateLimited),
        (events(SAID[2] | {"error": {}}) + DONE, UnreadableAnswer),
        (events(piece({"function_call": {"name": "f", "arguments": "{"}}), piece({}, "stop")), UnreadableAnswer),
    ],
)
async def test_no_chat_is_made_of_what_broke_off(body: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        await answered(body, make_call(stream=False))


PARTS: Json = {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}


@pytest.mark.parametrize(
    ("said", "end", "message"),
    [
        ([piece({"content": "Pa"}, "null"), piece({"content": "ris"}, "stop")], "stop", {"content": "Paris"}),
        ([piece({"content": "Pa"}), piece({}, "length"), piece({}, "stop")], "length", {"content": "Pa"}),
        ([{"tool": "search", "model": "other"}, piece({"content": "Pa"}, "stop")], "stop", {"content": "Pa"}),
        ([piece({"content": "Pa"}) | {"error": ""}, piece({"content": "ris"}, "stop")], "stop", {"content": "Paris"}),
        (
            [piece(PARTS), piece({"content": "Paris"}), piece({}, "stop")],
            "stop",
            {"content": "Paris", "reasoning_content": "hm"},
        ),
        (
            [piece({"reasoning_details": [1]}), piece({"reasoning_details": [2], "content": "Paris"}, "stop")],
            "stop",
            {"content": "Paris", "reasoning_details": [1, 2]},
        ),
    ],
)
def test_it_says_what_a_stream_asked_for_would(said: list[Json], end: str, message: Json) -> None:
    told = json.loads(as_one_chat(events({"choices": [], "model": "m"}, *said) + DONE))
    assert (told["model"], "tool" in told) == ("m", False)
    [choice] = told["choices"]
    assert (choice["finish_reason"], choice["message"]) == (end, {"role": "assistant"} | message)


RESPONSE: Json = {"id": "r", "object": "response", "status": "completed", "output": []}
ITEM: Json = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Paris"}]}


async def test_a_response() -> None:
    """As of ChatGPT's own address for Codex, behind other gateways (litellm #34095)."""
    body = events(
        {"type": "response.created", "response": RESPONSE | {"status": "in_progress"}},
        {"type": "response.output_item.done", "item": ITEM},
        {"type": "response.completed", "response": RESPONSE},
    )
    [chunk] = await answered(body, Call("responses", "m", b'{"model":"m","input":"hi"}', False, "r-1"))
    assert json.loads(chunk.payload) == RESPONSE | {"output": [ITEM]}


def test_what_cannot_be_joined_stays_as_it_came() -> None:
    endless = events(*(piece(call(index, "", name="f")) for index in range(MOST_CALLS + 1)))
    for body in (b'{"choices":[]}', b"<html>", endless):
        assert as_one_chat(body) is body
    for body in (b'{"object":"response"}', events({"type": "response.created"}, {"type": []})):
        assert as_one_response(body) is body
    error = events({"type": "error", "message": "no"})
    assert as_one_response(error) == error[6:-2]
