"""What some providers demand of chats with tools that OpenAI does not: Mistral an answer after each tool's result,
DeepSeek and Kimi K2.6 no forced call while they reason, Kimi K3 none of a named tool, Gemini a user's message before
the first call. Pure."""

from collections.abc import Iterator, Mapping
from itertools import pairwise, takewhile
from typing import Final

import msgspec

from backends.formats.json_objects import decode_object, objects_of, part_of
from backends.formats.json_splice import Member, objects_in

_TOOL, _USER = msgspec.Raw(b'"tool"'), msgspec.Raw(b'"user"')
_ASSISTANT: Final = msgspec.Raw(b'"assistant"')
_ANSWER: Final = {"role": _ASSISTANT, "content": msgspec.Raw(b'"OK."')}
OPENING: Final = "Go on."
"""What a user says before a conversation that begins with a call, its older turns left out by the client."""


def with_answers(messages: bytes) -> bytes:
    """A chat's `messages` with an assistant's message between each tool's result and a user's that follows it; the same
    bytes if none does."""
    if bytes(_TOOL) not in messages:
        return messages
    found = objects_in(messages)
    made = list(_answered(found))
    return messages if len(made) == len(found) else msgspec.json.encode(made)


def _answered(messages: list[dict[str, msgspec.Raw]]) -> Iterator[dict[str, msgspec.Raw]]:
    yield from messages[:1]
    for before, message in pairwise(messages):
        if before.get("role") == _TOOL and message.get("role") == _USER:
            yield _ANSWER
        yield message


def with_opening(messages: bytes) -> bytes:
    """A chat's `messages` with a user's message before the assistant's first, if that turn calls tools; the same bytes
    otherwise."""
    if b'"tool_calls"' not in messages:
        return messages
    found = objects_in(messages)
    start = next((place for place, message in enumerate(found) if message.get("role") == _ASSISTANT), len(found))
    said = takewhile(lambda message: message.get("role") == _ASSISTANT, found[start:])
    is_opened = any(message.get("role") in (_USER, _TOOL) for message in found[:start])
    if is_opened or not any(bytes(message.get("tool_calls", b"[]")) not in (b"[]", b"null") for message in said):
        return messages
    opening = {"role": _USER, "content": msgspec.Raw(msgspec.json.encode(OPENING))}
    return msgspec.json.encode([*found[:start], opening, *found[start:]])


def without_thinking_where_forced(body: bytes, members: Mapping[str, Member]) -> dict[str, bytes | None]:
    """Edits that turn reasoning off for a forced call, unless the caller asks for reasoning: then the provider refuses,
    and another model is asked. `auto`, which it may refuse too, is the default."""
    member = members.get("tool_choice")
    choice = member.of(body) if member else b"null"
    if choice == b'"auto"':
        return {"tool_choice": None}
    if choice in (b"null", b'"none"') or not members.keys().isdisjoint({"thinking", "reasoning_effort"}):
        return {}
    return {"thinking": b'{"type":"disabled"}'}


def with_named_tool_alone(body: bytes, members: Mapping[str, Member]) -> dict[str, bytes | None]:
    """Edits that force the named tool by offering no other, for a model that takes `required` but no name."""
    if not {"tools", "tool_choice"} <= members.keys():
        return {}
    fields = decode_object(body) or {}
    name = part_of(part_of(fields, "tool_choice"), "function").get("name")
    named = [tool for tool in objects_of(fields.get("tools")) if part_of(tool, "function").get("name") == name]
    if name is None or not named:
        return {}
    return {"tool_choice": b'"required"', "tools": msgspec.json.encode(named)}
