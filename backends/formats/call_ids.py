"""Rewrites tool call ids into the form a provider accepts. A conversation may move between models, and each makes ids
of its own form: Kimi's contain a colon, vLLM's have 46 characters. Pure.

An id that is not accepted is replaced by its hash, the same in every turn, so that results still match their calls and
the prompt stays in the cache.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from backends.formats.json_splice import MEMBERS, OBJECTS, VALUES

CallId = Callable[[str], str]
"""Maps an id to the one sent to the provider."""

_ANTHROPIC: Final = re.compile(r"[a-zA-Z0-9_-]+")
_MISTRAL: Final = re.compile(r"[a-zA-Z0-9]{9}")
_OPENAI_MOST: Final = 40
_ASSISTANT: Final = b'"assistant"'
_TEXT: Final = msgspec.json.Decoder(str)
_ANSWERED: Final = re.compile(rb'"tool_(?:call|use)_id"\s*:\s*"([^"]*)"')
"""Ids of tool results: every call has one, so these are all ids. Text that quotes such a member does not match, since
its quotes are escaped."""


def for_anthropic(call_id: str) -> str:
    return call_id if _ANTHROPIC.fullmatch(call_id) else f"call_{_digest(call_id)[:24]}"


def for_openai(call_id: str) -> str:
    return call_id if len(call_id) <= _OPENAI_MOST else f"call_{_digest(call_id)[:24]}"


def for_mistral(call_id: str) -> str:
    return call_id if _MISTRAL.fullmatch(call_id) else _digest(call_id)[:9]


def _digest(call_id: str) -> str:
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()


def with_call_ids(messages: bytes, told: CallId) -> bytes:
    """`messages` of a chat or of Anthropic with their ids mapped by `told`. The same bytes if no id changes, or if they
    are not messages."""
    found = {match[1] for match in _ANSWERED.finditer(messages)}
    if all(_is_taken(call_id, told) for call_id in found):
        return messages
    try:
        return msgspec.json.encode([_renamed(message, told) for message in OBJECTS.decode(messages)])
    except msgspec.DecodeError:
        return messages


def _is_taken(raw: bytes, told: CallId) -> bool:
    call_id = raw.decode("utf-8", "replace")
    return told(call_id) == call_id


def _renamed(message: dict[str, msgspec.Raw], told: CallId) -> dict[str, msgspec.Raw]:
    changed = message | _told(message, "tool_call_id", told)
    for name in ("tool_calls", "content"):
        inner = bytes(changed.get(name, b""))
        if inner.startswith(b"["):
            items = [_item(bytes(value), told) for value in VALUES.decode(inner)]
            changed[name] = msgspec.Raw(msgspec.json.encode(items))
    return changed


def _item(value: bytes, told: CallId) -> msgspec.Raw:
    """A tool call of a chat, or an Anthropic block that is a call or a result."""
    if not value.startswith(b"{"):
        return msgspec.Raw(value)
    fields = MEMBERS.decode(value)
    is_call = "function" in fields or "custom" in fields or bytes(fields.get("type", b"")) == b'"tool_use"'
    changes = _told(fields, "id" if is_call else "tool_use_id", told)
    return msgspec.Raw(msgspec.json.encode(fields | changes)) if changes else msgspec.Raw(value)


def _told(fields: dict[str, msgspec.Raw], name: str, told: CallId) -> dict[str, msgspec.Raw]:
    raw = bytes(fields.get(name, b""))
    if not raw.startswith(b'"'):
        return {}
    call_id = _TEXT.decode(raw)
    other = told(call_id)
    return {name: msgspec.Raw(msgspec.json.encode(other))} if other != call_id else {}


def with_distinct_ids(messages: bytes) -> bytes:
    """`messages` of a chat or of Anthropic in which no two calls have one id; the same bytes if none have."""
    try:
        found = OBJECTS.decode(messages)
    except msgspec.DecodeError:
        return messages
    ids, made = _DistinctIds(), list[dict[str, msgspec.Raw]]()
    for message in found:
        if bytes(message.get("role", b"")) == _ASSISTANT:
            ids.begin_turn()
            made.append(_renamed(message, ids.of_call))
        else:
            made.append(_renamed(message, ids.of_result))
    return msgspec.json.encode(made) if ids.has_changed else messages


class _DistinctIds:
    """Later calls of an id get another, the same in every turn, and each result that of the call which it follows."""

    def __init__(self) -> None:
        self.has_changed = False
        self._calls = Counter[str]()
        self._told: dict[str, str] = {}
        self._waiting: dict[str, list[str]] = {}

    def begin_turn(self) -> None:
        self._waiting.clear()

    def of_call(self, call_id: str) -> str:
        self._calls[call_id] += 1
        number = self._calls[call_id]
        told = call_id if number == 1 else f"call_{_digest(f'{call_id} {number}')[:24]}"
        self.has_changed = self.has_changed or told != call_id
        self._waiting.setdefault(call_id, []).append(told)
        return told

    def of_result(self, call_id: str) -> str:
        if waiting := self._waiting.get(call_id):
            self._told[call_id] = waiting.pop(0)
        return self._told.get(call_id, call_id)
