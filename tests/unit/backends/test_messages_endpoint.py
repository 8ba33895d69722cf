"""Anthropic's Messages as our endpoint: requests out, answers and events back, and the official client between."""

import json
from typing import Any, cast

import anthropic
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.anthropic_request import build_messages_body
from backends.chat_chunks import Answer, Head, done_chunk
from backends.chat_view import parse_chat
from backends.errors import Untranslatable, UpstreamRejected
from backends.http_reply import PlainReply
from backends.messages_endpoint_events import (
    MessagesEventWriter,
    error_event,
    message_from_answer,
    messages_error,
)
from backends.messages_endpoint_format import InvalidMessages, chat_body_from_messages
from backends.openai_format import OpenAIStreamReader
from backends.protocol import Call, Chunk, Reply
from backends.scripted import Outcome, ScriptedBackend, follow
from backends.translating import TranslatingBackend
from backends.usage import Usage

Json = dict[str, object]
LEAST: Json = {"model": "auto", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}


def translate(body: Json, *, keeps_cache_marks: bool = False) -> Json:
    sent = json.dumps(LEAST | body).encode()
    return cast(Json, json.loads(chat_body_from_messages(sent, keeps_cache_marks=keeps_cache_marks)))


FIELDS: list[tuple[Json, Json]] = [
    ({}, {}),
    ({"temperature": 0, "top_p": 0.5}, {"temperature": 0, "top_p": 0.5}),
    ({"stop_sequences": ["x"]}, {"stop": ["x"]}),
    ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
    ({"metadata": {"user_id": "u"}}, {"user": "u"}),
    (
        {"tools": [{"name": "f", "description": "d", "input_schema": SCHEMA, "strict": True}]},
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "parameters": SCHEMA, "description": "d", "strict": True},
                }
            ]
        },
    ),
    ({"tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
    (
        {"tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True}},
        {"tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": False},
    ),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
            }
        },
    ),
    ({"top_k": 3, "thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}, "service_tier": "auto"}, {}),
]


@pytest.mark.parametrize(("body", "expected"), FIELDS)
def test_fields(body: Json, expected: Json) -> None:
    assert translate(body) == LEAST | expected


CONVERSATION: Json = {
    "system": [{"type": "text", "text": "be brief"} | EPHEMERAL],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"} | EPHEMERAL,
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
                {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                {
                    "type": "document",
                    "title": "a.pdf",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "I see."},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "one"}]},
                {"type": "text", "text": "and?"},
            ],
        },
    ],
}


MARKED: Json = {
    "system": [{"type": "text", "text": "be brief"} | EPHEMERAL],
    "tools": [{"name": "f", "input_schema": SCHEMA} | EPHEMERAL],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "go"} | EPHEMERAL]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "one"} | EPHEMERAL]},
    ],
}


def test_cache_marks_go_to_those_alone_who_know_them() -> None:
    without = json.loads(json.dumps(MARKED).replace(', "cache_control": {"type": "ephemeral"}', ""))
    assert translate(MARKED) == translate(without)
    kept = cast(dict[str, list[Json]], translate(MARKED, keeps_cache_marks=True))
    assert kept["tools"][0]["cache_control"] == EPHEMERAL["cache_control"]
    assert [message["content"] for message in kept["messages"]] == [
        [{"type": "text", "text": "be brief"} | EPHEMERAL],
        [{"type": "text", "text": "go"} | EPHEMERAL],
        None,
        [{"type": "text", "text": "one"} | EPHEMERAL],
    ]


def test_a_conversation() -> None:
    assert translate(CONVERSATION, keeps_cache_marks=True)["messages"] == [
        {"role": "system", "content": [{"type": "text", "text": "be brief"} | EPHEMERAL]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"} | EPHEMERAL,
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
                {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
            ],
        },
        {
            "role": "assistant",
            "content": "I see.",
            "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "one"},
        {"role": "user", "content": [{"type": "text", "text": "and?"}]},
    ]


def test_there_and_back_loses_only_the_thinking() -> None:
    raw = chat_body_from_messages(json.dumps(LEAST | CONVERSATION).encode(), keeps_cache_marks=True)
    call = Call("chat.completions", "auto", raw, False, "r-1")
    again = json.loads(build_messages_body(parse_chat(raw), call))
    expected = json.loads(json.dumps(LEAST | CONVERSATION))
    expected["messages"][1]["content"].pop(0)
    assert again == expected


def test_a_failed_tool_and_its_image() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
    result = {
        "type": "tool_result",
        "tool_use_id": "t",
        "is_error": True,
        "content": [{"type": "text", "text": "no"}, image],
    }
    assert translate({"messages": [{"role": "user", "content": [result]}]})["messages"] == [
        {"role": "tool", "tool_call_id": "t", "content": "Error: no"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]},
    ]


REFUSED: list[tuple[Json, str]] = [
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"model": None}, "model"),
    ({"messages": []}, "messages"),
    ({"messages": {}}, "messages"),
    ({"messages": [1]}, "messages[0]"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "server_tool_use"}]}]}, "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]},
        "messages[0].content",
    ),
    ({"messages": [{"role": "assistant", "content": [{"type": "web_search_tool_result"}]}]}, "messages[0].content"),
    ({"system": [{"type": "text"}]}, "system"),
    ({"tools": [{"type": "web_search_20260101", "name": "web_search"}]}, "tools[0].type"),
    ({"tool_choice": {"type": "maybe"}}, "tool_choice.type"),
]


BILLING = "x-anthropic-billing-header: cc_version=2.1; cch=e1a6;"
BRIEF: Json = {"type": "text", "text": "be brief"}


@pytest.mark.parametrize(
    ("system", "content"),
    [
        (f"{BILLING}\nbe brief", "be brief"),
        (
            [{"type": "text", "text": BILLING}, {"type": "text", "text": "be brief"}],
            [{"type": "text", "text": "be brief"}],
        ),
        ([{"type": "text", "text": f"{BILLING}\nbe brief"}], [BRIEF]),
        (f"be brief\n{BILLING}", f"be brief\n{BILLING}"),
        (BILLING, None),
        ("", None),
    ],
)
def test_a_line_for_anthropics_billing_stands_in_nobody_elses_prompt(system: object, content: object) -> None:
    """It differs in every request, at the very head: no prefix cache would find anything."""
    said = cast(list[Json], translate({"system": system})["messages"])
    assert [one["content"] for one in said if one["role"] == "system"] == ([content] if content else [])


@pytest.mark.parametrize(("body", "param"), REFUSED)
def test_refusals_name_the_place(body: Json, param: str) -> None:
    with pytest.raises(InvalidMessages) as caught:
        translate(body)
    assert caught.value.param == param
    assert str(caught.value).startswith(param)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff"])
def test_a_body_must_be_an_object(body: bytes) -> None:
    with pytest.raises(InvalidMessages, match="body"):
        chat_body_from_messages(body)


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
    """The official client, unmodified, whose network is one prepared answer."""

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
        {"type": "thinking", "thinking": "hm", "signature": ""},
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


ANY = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "tool_use", "tool_result", "thinking", "document"])},
    optional={"text": ANY, "source": ANY, "id": ANY, "name": ANY, "input": ANY, "content": ANY},
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": ANY | st.lists(BLOCK | ANY, max_size=3)}
)
BODY = st.fixed_dictionaries(
    {"messages": ANY | st.lists(MESSAGE | ANY, max_size=3)},
    optional={
        "system": ANY | st.lists(BLOCK, max_size=2),
        "tools": ANY | st.lists(BLOCK | ANY, max_size=2),
        "tool_choice": ANY,
        "metadata": ANY,
        "output_config": ANY,
        "stop_sequences": ANY,
    },
)


@settings(max_examples=120, deadline=None)
@given(BODY)
def test_any_body_is_translated_or_refused(body: Json) -> None:
    try:
        said = translate(body)
    except InvalidMessages:
        return
    assert isinstance(said["messages"], list)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 1.5}, "temperature"),
        ({"top_p": True}, "top_p"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"stop_sequences": [7]}, "stop_sequences"),
    ],
)
def test_a_wrong_type_or_range_is_named(fields: dict[str, object], param: str) -> None:
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], **fields}
    with pytest.raises(InvalidMessages) as refused:
        chat_body_from_messages(json.dumps(asked).encode())
    assert refused.value.param == param


def test_search_results_and_documents_of_blocks_are_said_as_text() -> None:
    text = [{"type": "text", "text": "Paris is "}, {"type": "text", "text": "in France."}]
    blocks = [
        {"type": "search_result", "source": "https://x/y", "title": "Paris", "content": text},
        {"type": "document", "source": {"type": "content", "content": text}},
    ]
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": blocks}]}
    (message,) = json.loads(chat_body_from_messages(json.dumps(asked).encode()))["messages"]
    assert [part["text"] for part in message["content"]] == [
        "Paris\nhttps://x/y\nParis is in France.",
        "Paris is in France.",
    ]


@pytest.mark.parametrize(
    ("changes", "may_another_be_asked"),
    [
        ({"messages": []}, False),
        ({"messages": [{"role": "robot", "content": "x"}]}, False),
        ({"max_tokens": "many"}, False),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, True),
        ({"messages": [{"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}]}, True),
    ],
)
async def test_only_what_another_format_could_say_may_go_to_another_model(
    changes: dict[str, Any], may_another_be_asked: bool
) -> None:
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}], **changes}
    backend = TranslatingBackend(ScriptedBackend("one", follow([Outcome()])))
    with pytest.raises(UpstreamRejected) as refused:
        await backend.open(Call("messages", "m", json.dumps(asked).encode(), False, "r1"))
    assert isinstance(refused.value, Untranslatable) is may_another_be_asked
    assert refused.value.status == 400


async def test_a_conversation_kept_elsewhere_is_refused_so_that_clients_send_it_whole() -> None:
    """Anthropic's tool runners ask for a thread with every first request."""
    backend = TranslatingBackend(ScriptedBackend("one", follow([Outcome()])))
    asked = LEAST | {"thread": {"type": "continue", "previous_message_id": "msg_1"}}
    with pytest.raises(Untranslatable) as refused:
        await backend.open(Call("messages", "m", json.dumps(asked).encode(), False, "r1"))
    assert json.loads(refused.value.body)["error"]["details"] == {"error_code": "thread_not_found"}
    assert translate({"thread": {"type": "create"}}) == translate({})


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"stop_reason": "END"}, ("stop_sequence", "END")),  # vLLM
        ({"matched_stop": "END"}, ("stop_sequence", "END")),  # SGLang
        ({"stop_reason": 128009}, ("end_turn", None)),  # a token's number
        ({"stop_reason": "end_turn"}, ("end_turn", None)),  # nothing that was asked for
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
    """An engine that says what stopped it."""

    async def open(self, call: Call) -> Reply:
        choice = {"message": {"content": "a"}, "finish_reason": "stop", "stop_reason": "END"}
        return PlainReply(Chunk(json.dumps({"choices": [choice]}).encode(), is_done=True))


@pytest.mark.parametrize(("asked", "told"), [({"stop_sequences": ["END"]}, "END"), ({}, None), ({"top_k": 1}, None)])
async def test_what_stopped_an_engine_is_told_to_whoever_asked_for_it(asked: Json, told: str | None) -> None:
    backend = TranslatingBackend(Stopping("one", follow([Outcome()])))
    reply = await backend.open(Call("messages", "m", json.dumps(LEAST | asked).encode(), False, "r1"))
    (chunk,) = [chunk async for chunk in reply]
    assert json.loads(chunk.payload)["stop_sequence"] == told
