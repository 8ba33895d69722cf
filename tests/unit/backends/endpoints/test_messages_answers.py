"""Answers and events in Anthropic's format, read by the official client."""

import json
from typing import Any

import anthropic
import httpx2
import pytest

from backends.endpoints.messages_events import (
    MessagesEventWriter,
    error_event,
    message_from_answer,
    messages_error,
)
from backends.endpoints.messages_format import chat_body_from_messages, keeps_reasoning
from backends.formats.chat_chunks import Answer, Head, done_chunk
from backends.formats.openai import OpenAIStreamReader
from backends.formats.past_thinking import carry, detail_of
from backends.http.reply import PlainReply
from backends.protocol import Call, Chunk, Reply
from backends.scripted import Outcome, ScriptedBackend, follow
from backends.translating import TranslatingBackend
from backends.usage import Usage

Json = dict[str, object]
LEAST: Json = {"model": "auto", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}


def chat_event(delta: Json, finish: str | None = None) -> bytes:
    return json.dumps({"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode()


def call_delta(index: int, arguments: str, **head: object) -> Json:
    name = {"name": head.pop("name")} if "name" in head else {}
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments, **name}, **head}]}


USAGE_EVENT = json.dumps(
    {
        "choices": [],
        "usage": {"prompt_tokens": 12, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 5}},
    }
).encode()
STREAM = [
    chat_event({"role": "assistant", "content": ""}),
    chat_event({"reasoning_content": "hm"}),
    chat_event({"content": "Let "}),
    chat_event({"content": "me."}),
    chat_event(call_delta(0, "", id="t1", name="f")),
    chat_event(call_delta(0, '{"a":')),
    chat_event(call_delta(0, "1}")),
    chat_event(call_delta(1, "{}", id="t2", name="g")),
    chat_event({}, "tool_calls"),
    USAGE_EVENT,
    b"[DONE]",
]


def written(events: list[bytes]) -> bytes:
    reader = OpenAIStreamReader("b", wants_usage_chunk=False)
    writer = MessagesEventWriter(message_id="msg_1", model="m", input_tokens=11)
    return b"".join(writer.write(chunk) for event in events for chunk in reader.read(event))


def client_for(body: bytes, content_type: str, status: int = 200) -> anthropic.Anthropic:
    """The unmodified official client, whose network returns one prepared answer."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        del request
        return httpx2.Response(status, content=body, headers={"content-type": content_type})

    transport = httpx2.MockTransport(answer)
    return anthropic.Anthropic(api_key="k", http_client=httpx2.Client(transport=transport), max_retries=0)


ASK: list[anthropic.types.MessageParam] = [{"role": "user", "content": "hi"}]


def test_the_official_client_reads_our_stream() -> None:
    with (
        client_for(written(STREAM), "text/event-stream") as client,
        client.messages.stream(model="m", max_tokens=9, messages=ASK) as stream,
    ):
        kinds = [event.type for event in stream if event.type.startswith(("message", "content_block"))]
        message = stream.get_final_message()
    assert [block.to_dict() for block in message.content] == [
        {"type": "thinking", "thinking": "hm", "signature": "breakeven"},
        {"type": "text", "text": "Let me."},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
    ]
    assert message.stop_reason == "tool_use"
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (7, 5, 9)
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 4


def test_the_official_client_reads_our_message() -> None:
    answer = Answer(Head("x", "m", 0), text=["Let me."], reasoning=["hm"], finish_reason="tool_calls")
    answer.add_tool_call("t1", "f", '{"a":1}')
    body = message_from_answer(answer.chunk().payload, Usage(12, 5, output_tokens=9), message_id="msg_1", model="m")
    with client_for(body, "application/json") as client:
        message = client.messages.create(model="m", max_tokens=9, messages=ASK)
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert message.content[2].to_dict()["input"] == {"a": 1}
    assert (message.stop_reason, message.usage.input_tokens, message.usage.output_tokens) == ("tool_use", 7, 9)


def test_calls_without_an_id_get_one_that_a_result_can_name() -> None:
    answer = Answer(Head("x", "m", 0), finish_reason="tool_calls")
    answer.add_tool_call("", "f", "{}")
    answer.add_tool_call("", "g", "{}")
    message = json.loads(message_from_answer(answer.chunk().payload, Usage(1), message_id="msg_1", model="m"))
    assert [block["id"] for block in message["content"]] == ["toolu_msg_1_0", "toolu_msg_1_1"]


def test_the_official_client_raises_our_errors() -> None:
    refused = messages_error(429, "slow down")
    with client_for(refused, "application/json", 429) as client, pytest.raises(anthropic.RateLimitError, match="slow"):
        client.messages.create(model="m", max_tokens=9, messages=ASK)
    cut = written(STREAM[:3]) + error_event(502, "the answer broke off")
    with client_for(cut, "text/event-stream") as client, pytest.raises(anthropic.APIStatusError, match="broke off"):
        for _ in client.messages.create(model="m", max_tokens=9, messages=ASK, stream=True):
            pass


def test_usage_that_never_came_is_the_estimate() -> None:
    events = written([chat_event({"content": "x"}), chat_event({}, "length"), b"[DONE]"]).decode()
    [last] = [
        json.loads(line[6:]) for line in events.splitlines() if '"message_delta"' in line and line.startswith("data")
    ]
    assert last["delta"]["stop_reason"] == "max_tokens"
    assert last["usage"] == {
        "input_tokens": 11,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 0,
    }


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (418, "invalid_request_error"), (500, "api_error"), (529, "overloaded_error")],
)
def test_error_types(status: int, kind: str) -> None:
    assert json.loads(messages_error(status, "x"))["error"]["type"] == kind


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"stop_reason": "END"}, ("stop_sequence", "END")),  # vLLM
        ({"matched_stop": "END"}, ("stop_sequence", "END")),  # SGLang
        ({"stop_reason": 128009}, ("end_turn", None)),  # a token id
        ({"stop_reason": "end_turn"}, ("end_turn", None)),  # not a requested stop sequence
        ({}, ("end_turn", None)),
    ],
)
def test_a_stop_sequence_is_named_where_a_server_names_it(said: Json, expected: tuple[str, str | None]) -> None:
    ending: Json = {"index": 0, "finish_reason": "stop", **said}
    asked: dict[str, Any] = {"message_id": "msg_1", "model": "m", "stop_sequences": ["x", "END"]}
    body = json.dumps({"choices": [ending | {"message": {"content": "a"}}]}).encode()
    whole = json.loads(message_from_answer(body, None, **asked))
    writer = MessagesEventWriter(**asked, input_tokens=1)
    payload = b"data: " + json.dumps({"choices": [ending | {"delta": {"content": "a"}}]}).encode() + b"\n\n"
    events = writer.write(Chunk(payload, finish_reason="stop")) + writer.write(done_chunk())
    (delta,) = [json.loads(line[6:])["delta"] for line in events.splitlines() if b'"message_delta"' in line[6:]]
    for one in (whole, delta):
        assert (one["stop_reason"], one["stop_sequence"]) == expected


class Stopping(ScriptedBackend):
    """A backend that reports which stop sequence ended the answer."""

    async def open(self, call: Call) -> Reply:
        choice = {"message": {"content": "a"}, "finish_reason": "stop", "stop_reason": "END"}
        return PlainReply(Chunk(json.dumps({"choices": [choice]}).encode(), is_done=True))


@pytest.mark.parametrize(("asked", "told"), [({"stop_sequences": ["END"]}, "END"), ({}, None), ({"top_k": 1}, None)])
async def test_what_stopped_an_engine_is_told_to_whoever_asked_for_it(asked: Json, told: str | None) -> None:
    backend = TranslatingBackend(Stopping("one", follow([Outcome()])))
    reply = await backend.open(Call("messages", "m", json.dumps(LEAST | asked).encode(), False, "r1"))
    (chunk,) = [chunk async for chunk in reply]
    assert json.loads(chunk.payload)["stop_sequence"] == told


FIRST, SECOND = carry("one", "openai"), carry("two", "openai")
CARRYING = [
    chat_event({"role": "assistant", "content": ""}),
    chat_event({"reasoning_content": "hm"}),
    chat_event({"reasoning_details": [detail_of(FIRST, 0)]}),
    chat_event(call_delta(0, "{}", id="t1", name="f")),
    chat_event({"reasoning_details": [detail_of(SECOND, 2)]}),
    chat_event(call_delta(1, "{}", id="t2", name="g")),
    chat_event({}, "tool_calls"),
    USAGE_EVENT,
    b"[DONE]",
]
USES: list[Json] = [
    {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
    {"type": "tool_use", "id": "t2", "name": "g", "input": {}},
]
SEALED: list[Json] = [
    {"type": "thinking", "thinking": "hm", "signature": FIRST},
    USES[0],
    {"type": "thinking", "thinking": "", "signature": SECOND},
    USES[1],
]
PLAIN: list[Json] = [{"type": "thinking", "thinking": "hm", "signature": "breakeven"}, *USES]


@pytest.mark.parametrize(("keeps", "expected"), [(True, SEALED), (False, PLAIN)])
def test_what_its_provider_encrypted_is_the_signature_of_thinking(keeps: bool, expected: list[Json]) -> None:
    reader = OpenAIStreamReader("b", wants_usage_chunk=False)
    writer = MessagesEventWriter(message_id="msg_1", model="m", input_tokens=11, keeps_reasoning=lambda: keeps)
    events = b"".join(writer.write(chunk) for event in CARRYING for chunk in reader.read(event))
    with (
        client_for(events, "text/event-stream") as client,
        client.messages.stream(model="m", max_tokens=9, messages=ASK) as stream,
    ):
        assert [block.to_dict() for block in stream.get_final_message().content] == expected
    answer = Answer(Head("x", "m", 0), reasoning=["hm"], details=[detail_of(FIRST, 0), detail_of(SECOND, 2)])
    for use in USES:
        answer.add_tool_call(str(use["id"]), str(use["name"]), "{}")
    body = message_from_answer(
        answer.chunk().payload, None, message_id="msg_1", model="m", keeps_reasoning=lambda: keeps
    )
    assert json.loads(body)["content"] == expected


def test_it_comes_back_where_it_was_thought() -> None:
    answer: Json = {"role": "assistant", "content": SEALED}
    asked = LEAST | {"messages": [{"role": "user", "content": "hi"}, answer]}
    [_, message] = json.loads(chat_body_from_messages(json.dumps(asked).encode()))["messages"]
    assert message["reasoning_details"] == [detail_of(FIRST, 0), detail_of(SECOND, 2)]
    assert [call["id"] for call in message["tool_calls"]] == ["t1", "t2"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, False),
        ({"tools": []}, False),
        ({"tools": [{"name": "f"}]}, True),
        ({"thinking": {"type": "disabled"}}, False),
        ({"thinking": {"type": "adaptive"}}, True),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, True),
    ],
)
def test_who_is_told_of_thinking_that_nobody_can_read(body: Json, expected: bool) -> None:
    assert keeps_reasoning(json.dumps(LEAST | body).encode()) is expected
