"""Anthropic's Messages requests that cannot be said as a chat: whether another model is asked, and what the caller
hears."""

import json
from typing import Any

import pytest

from backends.endpoints.messages_format import chat_body_from_messages
from backends.errors import Untranslatable, UpstreamRejected
from backends.protocol import Call
from backends.scripted import Outcome, ScriptedBackend, follow
from backends.translating import TranslatingBackend

LEAST: dict[str, object] = {"model": "auto", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
BY_ID = {"type": "image", "source": {"type": "file", "file_id": "f"}}


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
