"""Anthropic's Messages requests that cannot be said as a chat: whether another model is asked, and what the caller
hears."""

import json
from contextlib import aclosing
from typing import Any

import pytest

from backends.dialects import dialect_of
from backends.endpoints.messages_format import chat_body_from_messages
from backends.errors import Untranslatable, UpstreamRejected
from backends.openai_compatible import OPENAI_PATHS, OpenAICompatibleBackend
from backends.protocol import Call, Operation
from backends.scripted import Outcome, ScriptedBackend, follow
from backends.translating import TranslatingBackend
from backends.usage import Usage
from tests import read_stream
from tests.scripted_provider import Raw, ScriptedProvider

LEAST: dict[str, object] = {"model": "auto", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
BY_ID = {"type": "image", "source": {"type": "file", "file_id": "f"}}
REFUSED: list[tuple[dict[str, object], str]] = [
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"model": None}, "model"),
    ({"messages": []}, "messages"),
    ({"messages": {}}, "messages"),
    ({"messages": [1]}, "messages[0]"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "messages"),
    ({"messages": [{"role": "system", "output_config": {"effort": "low"}}]}, "messages"),
    ({"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "server_tool_use"}]}]}, "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]},
        "messages[0].content",
    ),
    ({"messages": [{"role": "assistant", "content": [{"type": "web_search_tool_result"}]}]}, "messages[0].content"),
    ({"system": [{"type": "text"}]}, "system"),
    ({"tools": [{"type": "web_search_20260101", "name": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
    ({"tools": [{"name": "f", "input_schema": "text"}]}, "tools[0].input_schema"),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]}]}, "messages[0].content.id"),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]}]}, "messages[0].content.name"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages[0].content.tool_use_id"),
    ({"tool_choice": {"type": "maybe"}}, "tool_choice.type"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": 1.5}, "temperature"),
    ({"top_p": True}, "top_p"),
    ({"stop_sequences": "x"}, "stop_sequences"),
    ({"stop_sequences": [7]}, "stop_sequences"),
]


@pytest.mark.parametrize(("body", "param"), REFUSED)
def test_refusals_name_the_place(body: dict[str, object], param: str) -> None:
    with pytest.raises(UpstreamRejected) as caught:
        chat_body_from_messages(json.dumps(LEAST | body).encode())
    assert str(caught.value).startswith(f"{param}: ")


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff"])
def test_a_body_must_be_an_object(body: bytes) -> None:
    with pytest.raises(UpstreamRejected, match="body"):
        chat_body_from_messages(body)


@pytest.mark.parametrize(
    ("changes", "may_another_be_asked"),
    [
        ({"messages": []}, False),
        ({"messages": [{"role": "robot", "content": "x"}]}, False),
        ({"max_tokens": "many"}, False),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, True),
        ({"messages": [{"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}]}, True),
        ({"messages": [{"role": "user", "content": [BY_ID]}]}, True),
        ({"max_tokens": 0}, True),
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


@pytest.mark.parametrize("kind", ["bash_20250124", "memory_20250818", "web_search_20250305"])
def test_a_tool_of_anthropics_own_is_not_said_to_run_there(kind: str) -> None:
    """Callers run the first two themselves."""
    with pytest.raises(Untranslatable, match=f"only Anthropic's models know a tool of type '{kind}'; leave it out"):
        chat_body_from_messages(json.dumps(LEAST | {"tools": [{"type": kind, "name": "n"}]}).encode())


async def test_a_conversation_kept_elsewhere_is_refused_so_that_clients_send_it_whole() -> None:
    """Anthropic's tool runners ask for a thread with every first request."""
    backend = TranslatingBackend(ScriptedBackend("one", follow([Outcome()])))
    asked = LEAST | {"thread": {"type": "continue", "previous_message_id": "msg_1"}}
    with pytest.raises(Untranslatable) as refused:
        await backend.open(Call("messages", "m", json.dumps(asked).encode(), False, "r1"))
    assert json.loads(refused.value.body)["error"]["details"] == {"error_code": "thread_not_found"}
    plain, created = (
        chat_body_from_messages(json.dumps(LEAST | more).encode()) for more in ({}, {"thread": {"type": "create"}})
    )
    assert plain == created


ASKED = json.dumps(LEAST | {"stream": True, "contents": [{"role": "user", "parts": [{"text": "hi"}]}]}).encode()
TOO_LONG = {"code": "invalid_prompt", "message": "Your input: this model does not support such a context length."}
USED = {"input_tokens": 9, "output_tokens": 0}
FAILED = json.dumps({"type": "response.failed", "response": {"status": "failed", "error": TOO_LONG, "usage": USED}})


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        ("messages", b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: Your'),
        ("generate_content", b'{"error":{"code":400,"message":"The input token count exceeds the maximum number of '),
    ],
)
async def test_a_refusal_inside_a_stream_is_told_in_its_callers_format(operation: Operation, told: bytes) -> None:
    """OpenAI's responses refuse so what is too long, and Claude Code shortens a conversation at these words alone."""
    events = Raw((f"data: {FAILED}\n\n".encode(),), headers={"content-type": "text/event-stream"})
    async with ScriptedProvider(events) as provider:
        spoken = OpenAICompatibleBackend("b", provider.base_url, None, paths=OPENAI_PATHS, dialect=dialect_of("openai"))
        async with aclosing(TranslatingBackend(spoken, native=OPENAI_PATHS)) as backend:
            with pytest.raises(Untranslatable) as refused:
                await read_stream.collect(backend, Call(operation, "gpt-5.4-pro", ASKED, True, "r1"))
    assert refused.value.body.startswith(told)
    assert refused.value.usage == Usage(9)
