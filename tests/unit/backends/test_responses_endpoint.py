"""The Responses API in front of a chat backend: the request's way there, the answer's way back, whole and streamed."""

import json
from typing import Any

import msgspec
import pytest

from backends.chat_chunks import (
    Answer,
    Head,
    delta_chunk,
    done_chunk,
    finish_chunk,
    reasoning_chunk,
    role_chunk,
    text_chunk,
    tool_arguments_chunk,
    tool_start_chunk,
    usage_chunk,
)
from backends.errors import Untranslatable, UpstreamRejected
from backends.openai_compatible import OPENAI_PATHS, OpenAICompatibleBackend
from backends.protocol import Call, Chunk
from backends.responses_endpoint_events import ResponsesEventWriter, response_from_answer
from backends.responses_endpoint_format import chat_body_from_responses
from backends.responses_endpoint_items import ResponseHead
from backends.responses_format import ResponsesStreamReader, read_response
from backends.scripted import Outcome, ScriptedBackend, follow
from backends.sse import SseParser
from backends.translating import TranslatingBackend
from backends.usage import Usage

HEAD = Head("chatcmpl-1", "m", 7)
USAGE = Usage(input_tokens=12, cached_input_tokens=4, output_tokens=5, reasoning_tokens=2)
FUNCTION = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}


def chat(**fields: Any) -> dict[str, Any]:
    return json.loads(chat_body_from_responses(json.dumps({"model": "m", "input": "hi", **fields}).encode()))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"instructions": "Brief."}, {"role": "system", "content": "Brief."}),
        ({"input": [{"role": "developer", "content": "Brief."}]}, {"role": "system", "content": "Brief."}),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]},
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x/i.png"}]}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/i.png"}}]},
        ),
        (
            {"input": [{"role": "assistant", "content": [{"type": "output_text", "text": "a"}]}]},
            {"role": "assistant", "content": "a"},
        ),
        (
            {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
        ),
        (
            {"input": [{"type": "function_call_output", "call_id": "c", "output": "sunny"}]},
            {"role": "tool", "tool_call_id": "c", "content": "sunny"},
        ),
        (
            {"input": [{"type": "reasoning", "summary": []}, {"role": "user", "content": "a"}]},
            {"role": "user", "content": "a"},
        ),
    ],
)
def test_each_kind_of_item_becomes_a_message(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert chat(**given)["messages"][0] == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_output_tokens": 5}, {"max_tokens": 5}),
        ({"temperature": 0.5, "top_p": 0.1, "user": "u"}, {"temperature": 0.5, "top_p": 0.1, "user": "u"}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
        ({"text": {"verbosity": "low"}}, {"verbosity": "low"}),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        ({"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        (
            {"tool_choice": {"type": "function", "name": "f"}},
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}}},
        ),
        (
            {"tools": [FUNCTION]},
            {"tools": [{"type": "function", "function": {k: v for k, v in FUNCTION.items() if k != "type"}}]},
        ),
        ({"include": ["message.output_text.logprobs"]}, {"logprobs": True}),
        (
            {
                "tools": [FUNCTION, {**FUNCTION, "name": "time"}],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "required",
                    "tools": [{"type": "function", "name": "weather"}],
                },
            },
            {
                "tools": [{"type": "function", "function": {k: v for k, v in FUNCTION.items() if k != "type"}}],
                "tool_choice": "required",
            },
        ),
        ({"include": ["x"], "truncation": "auto", "store": True, "max_tool_calls": 1}, {}),
    ],
)
def test_each_field_is_translated_or_dropped(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert chat(**given) == {"model": "m", "messages": [{"role": "user", "content": "hi"}], **expected}


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"moderation": {"policy": {"output": {"mode": "block"}}}}, "moderation"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": None, "id": "x"}]}, "input[0].type"),
        ({"input": [{"id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "input[0].content[0]"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}]}, "tools[0].tools[0].type"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tool_choice": {"type": "web_search_preview"}}, "tool_choice"),
    ],
)
def test_what_cannot_be_said_is_refused_by_name(given: dict[str, Any], param: str) -> None:
    with pytest.raises(Untranslatable) as refused:
        chat(**given)
    assert json.loads(refused.value.body)["error"]["param"] == param


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"input": ["a"]}, "input[0]"),
        ({"input": [{"role": "robot", "content": "a"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 7}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": ["a"]}]}, "input[0].content[0]"),
        ({"tools": {}}, "tools"),
        ({"tools": ["a"]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name"),
    ],
)
def test_what_is_wrong_in_any_format_tries_no_other_model(given: dict[str, Any], param: str) -> None:
    with pytest.raises(UpstreamRejected) as refused:
        chat(**given)
    assert not isinstance(refused.value, Untranslatable)
    assert json.loads(refused.value.body)["error"]["param"] == param


def assistant(content: str | None, *call_ids: str) -> dict[str, Any]:
    calls = [{"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in call_ids]
    return {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})


SAID = {"type": "message", "role": "assistant", "content": "Let me see."}
CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
GIVEN = {"type": "function_call_output", "call_id": "c", "output": "sunny"}
TOLD = {"role": "tool", "tool_call_id": "c", "content": "sunny"}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([SAID, CALLED, GIVEN], [assistant("Let me see.", "c"), TOLD]),
        ([CALLED, SAID, GIVEN], [assistant("Let me see.", "c"), TOLD]),
        ([SAID, {"type": "reasoning"}, CALLED, GIVEN, SAID], [assistant("Let me see.", "c"), TOLD, SAID]),
        ([SAID, CALLED, CALLED | {"call_id": "d"}, SAID], [assistant("Let me see.\n\nLet me see.", "c", "d")]),
        ([SAID, SAID], [SAID, SAID]),
        ([CALLED, GIVEN, CALLED | {"call_id": "d"}], [assistant(None, "c"), TOLD, assistant(None, "d")]),
    ],
)
def test_what_a_model_says_with_its_calls_is_one_message_with_them(items: list[Any], expected: list[Any]) -> None:
    """Many backends want a call's result right behind the message with the call."""
    plain = [{name: value for name, value in message.items() if name != "type"} for message in expected]
    assert chat(input=items)["messages"] == plain


def test_a_body_that_is_no_object_is_wrong_in_any_format() -> None:
    with pytest.raises(UpstreamRejected, match="JSON object") as refused:
        chat_body_from_responses(b"[]")
    assert not isinstance(refused.value, Untranslatable)


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


async def test_other_operations_pass_untouched() -> None:
    inner = ScriptedBackend("one", follow([Outcome()]), keeps_calls=True)
    asked = Call("chat.completions", "m", b'{"model":"m","messages":[]}', False, "r1")
    await TranslatingBackend(inner).open(asked)
    assert inner.calls == [asked]


def events_of(payload: bytes) -> list[dict[str, Any]]:
    parser = SseParser()
    return [json.loads(event) for event in (*parser.receive(payload), *parser.finish())]


def written(chunks: list[Chunk]) -> list[dict[str, Any]]:
    writer = ResponsesEventWriter(ResponseHead("resp_1", 7, {}), now=lambda: 9.5)
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


def test_whole_and_streamed_say_the_same() -> None:
    answer = Answer(HEAD, text=["It is"], reasoning=["hm"], finish_reason="tool_calls", usage=USAGE)
    answer.add_tool_call("c0", "one", '{"a":1}')
    answer.add_tool_call("c1", "two", "{}")
    response = json.loads(response_from_answer(answer.chunk().payload, USAGE, ResponseHead("resp_1", 7, {}), now=9))
    assert response == written(CHUNKS)[-1]["response"]


def test_a_response_has_what_the_open_types_of_it_demand() -> None:
    """Numbers where nothing was asked, whole tools, and no `user` without one."""
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
    """So that a client's `output_text` does not hold it."""
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


@pytest.mark.parametrize(("reason", "because"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_an_answer_that_was_cut_says_why(reason: str, because: str) -> None:
    for document in (
        whole({"role": "assistant", "content": "cut"}, finish_reason=reason),
        written([role_chunk(HEAD), text_chunk(HEAD, "cut"), finish_chunk(HEAD, reason), done_chunk()])[-1]["response"],
    ):
        assert (document["status"], document["incomplete_details"]) == ("incomplete", {"reason": because})
        assert document["output"][0]["status"] == "incomplete"


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


def whole(message: dict[str, Any], *, finish_reason: str = "stop", logprobs: Any = None) -> dict[str, Any]:
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


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("is_native", [False, True])
async def test_work_in_the_background_is_refused_before_anything_is_sent_and_says_what_to_do(
    is_native: bool, is_stream: bool
) -> None:
    inner = OpenAICompatibleBackend("one", "http://127.0.0.1:1/v1", None, paths=OPENAI_PATHS)
    backend = TranslatingBackend(inner, native=OPENAI_PATHS if is_native else ())
    asked = {"model": "m", "input": "hi", "background": True, "stream": is_stream}
    with pytest.raises(UpstreamRejected) as refused:
        await backend.open(Call("responses", "m", json.dumps(asked).encode(), is_stream, "r1"))
    await backend.aclose()
    assert not isinstance(refused.value, Untranslatable), "no other model could take it"
    error = json.loads(refused.value.body)["error"]
    assert (refused.value.status, error["param"]) == (400, "background")
    assert "leave it out, and stream" in error["message"]
