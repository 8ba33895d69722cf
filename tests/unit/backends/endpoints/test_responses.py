"""The Responses API in front of a chat backend: translated answers, whole and streamed."""

import json
from typing import Any

import msgspec
import pytest

from backends.endpoints.responses_events import ResponsesEventWriter, response_from_answer
from backends.endpoints.responses_items import ResponseHead
from backends.endpoints.tool_call_deltas import EndlessAnswer
from backends.errors import StreamBroken
from backends.formats.chat_chunks import (
    Answer,
    Head,
    delta_chunk,
    done_chunk,
    finish_chunk,
    reasoning_chunk,
    refusal_chunk,
    role_chunk,
    text_chunk,
    tool_arguments_chunk,
    tool_start_chunk,
    usage_chunk,
)
from backends.formats.json_objects import Fields
from backends.formats.responses import ResponsesStreamReader, read_response
from backends.http.reply import PlainReply
from backends.http.sse import SseParser
from backends.protocol import Call, Chunk, Reply
from backends.scripted import Outcome, ScriptedBackend, follow
from backends.translating import LONGEST_STREAM_BYTES, TranslatingBackend
from backends.usage import Usage

HEAD = Head("chatcmpl-1", "m", 7)
USAGE = Usage(input_tokens=12, cached_input_tokens=4, output_tokens=5, reasoning_tokens=2)


def call(*, is_stream: bool, **fields: Any) -> Call:
    body = json.dumps({"model": "auto", "input": "hi", "stream": is_stream, **fields}).encode()
    return Call("responses", "m", body, is_stream, "r1", wants_usage_chunk=True)


async def opened(outcome: Outcome, asked: Call) -> list[Chunk]:
    backend = TranslatingBackend(ScriptedBackend("one", follow([outcome])), now=lambda: 7.0)
    reply = await backend.open(asked)
    chunks = [chunk async for chunk in reply]
    await reply.aclose()
    return chunks


async def test_a_whole_answer_reads_as_a_response() -> None:
    (chunk,) = await opened(Outcome(), call(is_stream=False, temperature=0.5, metadata={"a": "b"}))
    document = json.loads(chunk.payload)
    read = read_response(chunk.payload, backend="one")
    assert (read.finish_reason, read.output_characters) == ("stop", 13)
    assert read.usage == msgspec.structs.replace(chunk.usage or Usage(), service_tier="default")
    assert document["output"][0]["content"][0]["text"] == "Hello, world."
    assert (document["id"], document["created_at"], document["status"]) == ("resp_r1", 7, "completed")
    assert document["completed_at"] == 7
    assert (document["temperature"], document["metadata"]) == (0.5, {"a": "b"})


@pytest.mark.parametrize(
    ("reason", "status"), [("stop", "completed"), ("length", "incomplete"), ("content_filter", "incomplete")]
)
async def test_a_stream_reads_as_a_responses_stream(reason: str, status: str) -> None:
    chunks = await opened(Outcome(finish_reason=reason), call(is_stream=True))
    events = events_of(b"".join(chunk.payload for chunk in chunks))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert "".join(one["delta"] for one in events if one["type"] == "response.output_text.delta") == "Hello, world."
    assert (events[0]["type"], events[-1]["type"]) == ("response.created", f"response.{status}")
    assert events[-1]["response"]["usage"]["input_tokens"] == 12
    reader = ResponsesStreamReader("one")
    read = [chunk for event in events for chunk in reader.read(json.dumps(event).encode())]
    assert reader.is_done
    assert sum(chunk.output_characters for chunk in read) == sum(chunk.output_characters for chunk in chunks)


async def test_a_stream_without_end_is_broken_off_before_it_fills_the_memory() -> None:
    piece = Chunk(bytes(LONGEST_STREAM_BYTES // 4), has_output=True)

    class Endless(PlainReply):
        count = 0

        async def __anext__(self) -> Chunk:
            self.count += 1
            return piece

    sent = Endless(piece)

    class Sending(ScriptedBackend):
        async def open(self, call: Call) -> Reply:
            del call
            return sent

    reply = await TranslatingBackend(Sending("one", follow([Outcome()]))).open(call(is_stream=True))
    with pytest.raises(StreamBroken, match="endless"):
        _ = [chunk async for chunk in reply]
    assert sent.count == 5


@pytest.mark.parametrize("is_stream", [True, False])
def test_calls_without_an_id_have_none_of_another_turns(is_stream: bool) -> None:
    """MiniMax may give none: each turn of a conversation had a call_0."""
    ids: list[str] = []
    for name in ("resp_1", "resp_2"):
        head = ResponseHead(name, 7, {})
        if is_stream:
            writer = ResponsesEventWriter(head, now=lambda: 9.5)
            said = b"".join(
                writer.write(chunk)
                for chunk in (tool_start_chunk(HEAD, 0, "", "f", "{}"), finish_chunk(HEAD, "tool_calls"), done_chunk())
            )
            [item] = events_of(said)[-1]["response"]["output"]
        else:
            answer = Answer(HEAD, finish_reason="tool_calls")
            answer.add_tool_call("", "f", "{}")
            [item] = json.loads(response_from_answer(answer.chunk().payload, None, head, now=9.5))["output"]
        ids.append(item["call_id"])
    assert ids == ["call_resp_1_0", "call_resp_2_0"]


def test_parts_without_end_are_not_remembered() -> None:
    writer = ResponsesEventWriter(ResponseHead("resp_1", 7, {}), now=lambda: 9.5, most_parts=2)
    for chunk in (reasoning_chunk(HEAD, "hm"), text_chunk(HEAD, "a"), text_chunk(HEAD, "b")):
        writer.write(chunk)
    with pytest.raises(EndlessAnswer):
        writer.write(refusal_chunk(HEAD, "no"))


async def test_other_operations_pass_untouched() -> None:
    inner = ScriptedBackend("one", follow([Outcome()]), keeps_calls=True)
    asked = Call("chat.completions", "m", b'{"model":"m","messages":[]}', False, "r1")
    await TranslatingBackend(inner).open(asked)
    assert inner.calls == [asked]


def events_of(payload: bytes) -> list[dict[str, Any]]:
    parser = SseParser()
    return [json.loads(event) for event in (*parser.receive(payload), *parser.finish())]


def written(chunks: list[Chunk], **asked: object) -> list[dict[str, Any]]:
    writer = ResponsesEventWriter(ResponseHead("resp_1", 7, asked), now=lambda: 9.5)
    return events_of(b"".join(writer.write(chunk) for chunk in chunks))


CHUNKS = [
    role_chunk(HEAD),
    reasoning_chunk(HEAD, "hm"),
    text_chunk(HEAD, "It "),
    text_chunk(HEAD, "is"),
    tool_start_chunk(HEAD, 0, "c0", "one"),
    tool_arguments_chunk(HEAD, 0, '{"a":'),
    tool_arguments_chunk(HEAD, 0, "1}"),
    tool_start_chunk(HEAD, 1, "c1", "two", "{}"),
    finish_chunk(HEAD, "tool_calls"),
    usage_chunk(HEAD, USAGE, is_shown=False, is_malformed=False),
    done_chunk(),
]


def test_reasoning_text_and_calls_are_items_in_order() -> None:
    events = written(CHUNKS)
    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call", "function_call"]
    assert output[0]["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert output[1]["content"][0]["text"] == "It is"
    assert [(item["call_id"], item["name"], item["arguments"]) for item in output[2:]] == [
        ("c0", "one", '{"a":1}'),
        ("c1", "two", "{}"),
    ]
    for place, item in enumerate(output):
        mine = [event for event in events if event.get("output_index") == place]
        assert mine[0]["type"] == "response.output_item.added"
        assert mine[-1] == {**mine[-1], "type": "response.output_item.done", "item": item}
        assert {event["item_id"] for event in mine if "item_id" in event} == {item["id"]}


def test_thoughts_are_a_summary_for_whoever_asks_for_one() -> None:
    """Clients that request one read nothing else, and two of them end the stream at a part of another kind."""
    events = written(CHUNKS, reasoning={"effort": "low", "summary": "auto"})
    thought = {"type": "summary_text", "text": "hm"}
    output = events[-1]["response"]["output"]
    assert (output[0]["summary"], output[0]["content"], output[1]["content"][0]["text"]) == ([thought], [], "It is")
    names = [event["type"] for event in events if "summary_index" in event]
    assert names == [
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
    ]
    assert not [event for event in events if event.get("part", {}).get("type") == "reasoning_text"]
    for summary in (None, "none"):
        assert written(CHUNKS, reasoning={"summary": summary})[-1]["response"]["output"][0]["summary"] == []


@pytest.mark.parametrize("asked", [{}, {"reasoning": {"summary": "detailed"}}])
def test_whole_and_streamed_say_the_same(asked: Fields) -> None:
    answer = Answer(HEAD, text=["It is"], reasoning=["hm"], finish_reason="tool_calls", usage=USAGE)
    answer.add_tool_call("c0", "one", '{"a":1}')
    answer.add_tool_call("c1", "two", "{}")
    response = json.loads(response_from_answer(answer.chunk().payload, USAGE, ResponseHead("resp_1", 7, asked), now=9))
    assert response == written(CHUNKS, **asked)[-1]["response"]


def test_a_response_has_what_the_open_types_of_it_demand() -> None:
    """Numbers where nothing was requested, complete tools, and no null `user`."""
    document = ResponseHead(
        "resp_1", 7, {"tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "g"}]}
    ).finished("m", [], "stop", USAGE, at=9)
    assert (document["temperature"], document["top_p"], document["service_tier"]) == (1, 1, "default")
    assert (document["presence_penalty"], document["frequency_penalty"], document["completed_at"]) == (0, 0, 9)
    assert document["tools"] == [
        {"type": "function", "name": "f", "description": None, "parameters": None, "strict": False},
        {"type": "custom", "name": "g"},
    ]
    assert "user" not in document
    assert ResponseHead("resp_1", 7, {}).finished("m", [], "length", USAGE, at=9)["completed_at"] is None


LOGPROBS = [{"token": "It", "logprob": -0.5, "bytes": [73, 116], "top_logprobs": []}]


def test_a_refusal_is_a_part_of_its_own() -> None:
    """So that a client's `output_text` does not contain it."""
    events = written(
        [
            role_chunk(HEAD),
            delta_chunk(HEAD, {"refusal": "I can"}, 5),
            delta_chunk(HEAD, {"refusal": "not"}, 3),
            finish_chunk(HEAD, "stop"),
            done_chunk(),
        ]
    )
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.refusal.delta",
        "response.refusal.delta",
        "response.refusal.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert events[6]["refusal"] == "I cannot"
    assert events[-1]["response"]["output"][0]["content"] == [{"type": "refusal", "refusal": "I cannot"}]
    message = {"role": "assistant", "content": None, "refusal": "I cannot"}
    assert whole(message)["output"][0]["content"] == [{"type": "refusal", "refusal": "I cannot"}]


def test_text_and_refusal_are_parts_of_one_message() -> None:
    chunks = [role_chunk(HEAD), text_chunk(HEAD, "Sure"), delta_chunk(HEAD, {"refusal": "no"}, 2)]
    events = written([*chunks, finish_chunk(HEAD, "stop"), done_chunk()])
    (item,) = events[-1]["response"]["output"]
    assert [part["type"] for part in item["content"]] == ["output_text", "refusal"]
    assert [event["content_index"] for event in events if event["type"] == "response.content_part.done"] == [0, 1]


@pytest.mark.parametrize(
    ("reason", "because"),
    [
        ("length", "max_output_tokens"),
        ("model_length", "max_output_tokens"),
        ("content_filter", "content_filter"),
        ("sensitive", "content_filter"),
        ("content_filter: PROHIBITED_CONTENT", "content_filter"),
    ],
)
def test_an_answer_that_was_cut_says_why(reason: str, because: str) -> None:
    for document in (
        whole({"role": "assistant", "content": "cut"}, finish_reason=reason),
        written([role_chunk(HEAD), text_chunk(HEAD, "cut"), finish_chunk(HEAD, reason), done_chunk()])[-1]["response"],
    ):
        assert (document["status"], document["incomplete_details"]) == ("incomplete", {"reason": because})
        assert document["output"][0]["status"] == "incomplete"


def test_a_reason_that_is_no_text_is_none() -> None:
    assert whole({"role": "assistant", "content": "x"}, finish_reason=["length"])["status"] == "completed"


def test_logprobs_come_back() -> None:
    answered = whole({"role": "assistant", "content": "It"}, logprobs={"content": LOGPROBS})
    assert answered["output"][0]["content"][0]["logprobs"] == LOGPROBS
    chunk = text_chunk(HEAD, "It")
    document = json.loads(chunk.payload[6:])
    document["choices"][0]["logprobs"] = {"content": LOGPROBS}
    said = Chunk(b"data: " + json.dumps(document).encode() + b"\n\n", has_output=True, output_characters=2)
    events = written([said, finish_chunk(HEAD, "stop"), done_chunk()])
    assert next(event for event in events if event["type"] == "response.output_text.delta")["logprobs"] == LOGPROBS
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == LOGPROBS


def test_a_response_repeats_what_was_asked_and_defaults_for_what_was_null() -> None:
    head = ResponseHead("resp_1", 7, {"tools": None, "text": {"verbosity": "low"}, "safety_identifier": "s"})
    document = head.document("m", [], "completed", None)
    assert (document["tools"], document["safety_identifier"]) == ([], "s")
    assert document["text"] == {"format": {"type": "text"}, "verbosity": "low"}


def whole(message: dict[str, Any], *, finish_reason: object = "stop", logprobs: Any = None) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason, "logprobs": logprobs}
    body = json.dumps({"model": "m", "choices": [choice]}).encode()
    return json.loads(response_from_answer(body, USAGE, ResponseHead("resp_1", 7, {}), now=9))


def test_the_model_is_named_as_soon_as_its_provider_does_and_until_then_as_asked() -> None:
    writer = ResponsesEventWriter(ResponseHead("resp", 7, {"model": "asked"}), now=lambda: 9)
    payload = b"".join(
        writer.write(chunk) for chunk in (role_chunk(Head("", "", 0)), text_chunk(HEAD, "a"), done_chunk())
    )
    models = [
        event["response"]["model"] for event in map(json.loads, SseParser().receive(payload)) if "response" in event
    ]
    assert models == ["asked", "asked", "m"]
