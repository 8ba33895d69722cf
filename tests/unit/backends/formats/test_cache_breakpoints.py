"""What a caller marks for Anthropic's cache is marked for OpenAI's, whose models since GPT-5.6 find nothing without."""

import json
from contextlib import aclosing
from typing import Any

import pytest

from backends.dialects import dialect_of
from backends.errors import BackendError
from backends.formats.sampling import caches_at_breakpoints
from backends.openai_compatible import OPENAI_PATHS, OpenAICompatibleBackend
from backends.protocol import Call
from backends.translating import TranslatingBackend
from tests import read_stream
from tests.scripted_provider import Raw, ScriptedProvider

Json = dict[str, Any]
MARK: Json = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
BREAKPOINT: Json = {"prompt_cache_breakpoint": {"mode": "explicit"}}
CALL: Json = {"type": "tool_use", "id": "c", "name": "f", "input": {}, **MARK}
RESULT: Json = {"type": "tool_result", "tool_use_id": "c", "content": "3.50", **MARK}
"""As Claude Code sends its turns: tools, system and the last messages are marked."""
TURN: Json = {
    "model": "auto",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "first", **MARK}, {"type": "text", "text": "second", **MARK}],
    "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {}}, **MARK}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi", **MARK}]},
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": [RESULT]},
    ],
}
UNMARKED = ["first", "second", "hi", "3.50"]
MARKED = ["second", "hi", "3.50"]
"""OpenAI takes four breakpoints, and sets one itself."""


async def sent_to(provider_name: str, model: str, operation: Any, body: Json, **changes: Any) -> Json:
    async with ScriptedProvider(Raw((b"{}",), status=400)) as provider:
        dialect = dialect_of(provider_name)
        inner = OpenAICompatibleBackend("b", provider.base_url, None, dialect=dialect, paths=OPENAI_PATHS)
        async with aclosing(inner):
            call = Call(operation, model, json.dumps(body).encode(), False, "r-1", **changes)
            with pytest.raises(BackendError):  # what was asked matters alone
                await read_stream.collect(TranslatingBackend(inner, native={"responses"}, dialect=dialect), call)
        return json.loads(provider.received[0].body)


def texts_with(body: Json, mark: Json) -> list[str]:
    """The texts of a chat's or a response's parts that have it."""
    items = body.get("messages") or body["input"]
    contents = [one.get("content") or one.get("output") for one in items]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return [part["text"] for part in parts if mark.items() <= part.items()]


@pytest.mark.parametrize(
    ("provider", "model", "reasons", "marked"),
    [
        ("openai", "gpt-5.6-luna", False, MARKED),
        ("openai", "gpt-6.1-sol", True, MARKED),  # over the Responses API
        ("openai", "gpt-5.5", False, []),  # refuses breakpoints, and needs none
        ("groq", "gpt-5.6-luna", False, []),
        ("", "gpt-5.6-luna", False, []),
    ],
)
async def test_marks_of_messages(provider: str, model: str, marked: list[str], *, reasons: bool) -> None:
    """ax #573 measured 10,445 of 90,000 tokens read, and 3.4 times the cost, on gpt-5.6-luna; litellm #37628."""
    asked = await sent_to(provider, model, "messages", TURN, reasons=reasons)
    assert ("input" in asked) == reasons
    assert texts_with(asked, BREAKPOINT) == marked
    assert "cache_control" not in json.dumps(asked)
    assert not marked or texts_with(asked, {}) == UNMARKED


@pytest.mark.parametrize("own", [{}, BREAKPOINT])
async def test_marks_of_a_chat(own: Json) -> None:
    parts = [{"type": "text", "text": text, **MARK} for text in ("a", "b", "c", "d")]
    answer = {"role": "assistant", "content": [{"type": "text", "text": "e", **MARK}]}
    chat = {
        "messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "f", **own}]}, answer],
        "x": 1.50,
    }
    asked = await sent_to("openai", "gpt-5.6-luna", "chat.completions", chat)
    assert texts_with(asked, BREAKPOINT) == (["f"] if own else ["b", "c", "d"])
    assert "cache_control" not in json.dumps(asked)


def test_which_models_have_them() -> None:
    """By OpenAI's guide: those since GPT-5.6."""
    assert all(map(caches_at_breakpoints, ("gpt-5.6-sol", "gpt-5.10", "gpt-6-luna", "gpt-6.1-sol")))
    assert not any(map(caches_at_breakpoints, ("gpt-5.5", "gpt-5", "gpt-4o", "o3", "gpt-oss-120b", "my-deployment")))
