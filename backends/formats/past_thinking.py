"""Handles reasoning of earlier turns that callers send back: adds it for providers that require it, and removes it for
those that reject another model's reasoning. Pure.

Some providers reject a conversation with tool calls if the reasoning before them is missing, and a conversation may
move between providers with every request.
"""

import base64
import binascii
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from backends.formats.json_objects import Fields, decode_object, integer, objects_of, text_of
from backends.formats.json_splice import MEMBERS, OBJECTS, VALUES, objects_in

THOUGHT: Final = "reasoning_content"
"""The member in which a translated assistant message holds its reasoning, until `name_thoughts`."""
UNSIGNED: Final = "breakeven"
"""The signature of a thinking block that we wrote, if its model encrypted nothing. Clients discard blocks without a
signature."""
SEALED: Final = "breakeven:"
"""Prefix of `encrypted_content` in a reasoning item that we wrote; base64 follows. It hides no secret: it is used
because a client with `store: false` may keep nothing else of such an item."""
DETAILS: Final = "reasoning_details"
"""The chat message member for encrypted reasoning, as OpenRouter defines it: a list of objects, each an output item at
position `index`."""
ENCRYPTED: Final = "reasoning.encrypted"
OUR_REASONING: Final = "rs_resp_"
"""Prefix of the ids of reasoning items that we wrote."""
UNKNOWN_SIGNATURE: Final = "skip_thought_signature_validator"
"""The placeholder that Google documents for a function call whose thought signature is unknown."""
UNREADABLE_SIGNATURE: Final = re.compile(
    rb"(?:invalid|corrupted) thought signature|thought signature is not valid", re.IGNORECASE
)
"""How Google rejects a signature of another model or account, or of a conversation that has changed since."""
_REASONING: Final = msgspec.Raw(b'"reasoning"')
_TIED: Final = tuple(msgspec.Raw(b'"%b"' % kind) for kind in (b"message", b"function_call", b"custom_tool_call"))
"""Items whose id, which may be left out, tells OpenAI which reasoning they belong to."""
_REFERENCE: Final = (msgspec.Raw(b'"item_reference"'), None)
NOTHING: Final = msgspec.Raw(b'" "')
"""Stands for reasoning that is no longer known; DeepSeek treats an empty string as missing."""

UNSIGNED_MARK: Final = b'"%b' % UNSIGNED.encode()
_THINKING_MARK: Final = b'thinking"'
_THINKING_PART: Final = b'"thinking"'
_SILENT: Final = {"content": msgspec.Raw(b'""')}
_THINKING: Final = ("thinking", "redacted_thinking")
OUR_MARKS: Final = (b'"%b' % OUR_REASONING.encode(), b'"%b' % SEALED.encode())
"""Bytes that every body with thinking or reasoning of ours contains: a search for them spares most bodies parsing."""


def seal(thought: str) -> str:
    """An `encrypted_content` that `unsealed` reads."""
    return SEALED + base64.b64encode(thought.encode()).decode()


def unsealed(sealed: object) -> str:
    """The text that `seal` was given; empty if it is not sealed so."""
    if not isinstance(sealed, str) or not sealed.startswith(SEALED):
        return ""
    try:
        return base64.b64decode(sealed[len(SEALED) :], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def carry(encrypted: str, backend: str) -> str:
    """Encrypted reasoning, tagged with its backend, for the caller to send back with the next turn: only that provider
    can read it."""
    return f"{SEALED}{backend}:{encrypted}"


def carried_for(backend: str, text: object) -> str | None:
    """The encrypted reasoning, if `carry` tagged it with this backend; else None."""
    mark = carry("", backend)
    return text.removeprefix(mark) if isinstance(text, str) and text.startswith(mark) else None


def detail_of(carried: str, index: int) -> Fields:
    """Carried reasoning as an entry of a chat message's DETAILS; `index` is its place among the answer's items."""
    return {"type": ENCRYPTED, "data": carried, "format": UNSIGNED, "index": index}


def details_of(message: Mapping[str, object]) -> list[tuple[int, str]]:
    """(place, carried reasoning) of each reasoning item that a message carries for us, in order."""
    found = [detail for detail in objects_of(message.get(DETAILS)) if is_carried(detail.get("data"))]
    return sorted((integer(detail, "index") or 0, str(detail["data"])) for detail in found)


def with_details(
    items: Sequence[Fields], details: Iterable[tuple[int, Fields]], *, before_last: bool = False
) -> list[Fields]:
    """The items of an answer with each detail inserted at its place; details come in order. `before_last`: none comes
    after the last item."""
    made: list[Fields] = []
    left = deque(items)
    for place, detail in details:
        while len(made) < place and len(left) > before_last:
            made.append(left.popleft())
        made.append(detail)
    return [*made, *left]


def is_carried(text: object) -> bool:
    return isinstance(text, str) and text.startswith(SEALED)


def without_carried(messages: bytes) -> bytes:
    """A chat's `messages` without reasoning that is carried for us; the same bytes if there is none."""
    if messages.find(OUR_MARKS[1]) < 0 or DETAILS.encode() not in messages:
        return messages
    try:
        found = OBJECTS.decode(messages)
        kept = [_uncarried(message) for message in found]
    except (msgspec.DecodeError, UnicodeDecodeError):  # its provider's to refuse
        return messages
    return messages if kept == found else msgspec.json.encode(kept)


def _uncarried(message: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    details = bytes(message.get(DETAILS, b"null"))
    if OUR_MARKS[1] not in details or not details.startswith(b"["):
        return message
    kept = [one for one in VALUES.decode(details) if not is_carried((decode_object(bytes(one)) or {}).get("data"))]
    others = {name: value for name, value in message.items() if name != DETAILS}
    return others | {DETAILS: _raw(kept)} if kept else others


def thought_of(item: Mapping[str, object]) -> str:
    """The text of a Responses API reasoning item, empty if we cannot read it."""
    said = "".join(text_of(part, "text") or "" for part in objects_of(item.get("content")))
    if not said and is_our_reasoning(item):  # in other items the summary is not the reasoning
        said = "".join(text_of(part, "text") or "" for part in objects_of(item.get("summary")))
    return said or unsealed(item.get("encrypted_content"))


def name_thoughts(message: Fields, names: tuple[str, ...]) -> Fields:
    """The message with its THOUGHT moved to each of these names; dropped if there are none."""
    thought = message.pop(THOUGHT, None)
    return message | dict.fromkeys(names, thought) if thought else message


def without_unsigned(messages: bytes) -> bytes:
    """Anthropic's `messages` without thinking that we wrote; the same bytes if there is none."""
    return _without_blocks(messages, UNSIGNED_MARK, _is_unsigned)


def without_thinking(messages: bytes) -> bytes:
    """Anthropic's `messages` without anybody's thinking; the same bytes if there is none."""
    return _without_blocks(messages, _THINKING_MARK, lambda block: _kind_of(block) in _THINKING)


def without_thinking_parts(messages: bytes) -> bytes:
    """A chat's `messages` without the thinking that Mistral's models put among the parts of `content`; the same bytes
    if there is none."""
    if messages.find(_THINKING_PART) < 0:
        return messages
    found = objects_in(messages)
    told = [
        _with_left_out(message, _THINKING_PART, lambda part: _kind_of(part) == "thinking") or message | _SILENT
        for message in found
    ]
    return messages if told == found else msgspec.json.encode(told)


def _without_blocks(messages: bytes, mark: bytes, is_left_out: Callable[[msgspec.Raw], bool]) -> bytes:
    """`mark`: bytes that every block to leave out contains."""
    found = objects_in(messages)
    kept = [left for message in found if (left := _with_left_out(message, mark, is_left_out)) is not None]
    return messages if kept == found else msgspec.json.encode(kept)


def _with_left_out(
    message: dict[str, msgspec.Raw], mark: bytes, is_left_out: Callable[[msgspec.Raw], bool]
) -> dict[str, msgspec.Raw] | None:
    """The message without these blocks; None if nothing is left of it."""
    content = bytes(message.get("content", b""))
    if not content.startswith(b"[") or mark not in content:
        return message
    blocks = VALUES.decode(content)
    kept = [block for block in blocks if not is_left_out(block)]
    if len(kept) == len(blocks):
        return message
    return message | {"content": msgspec.Raw(msgspec.json.encode(kept))} if kept else None


def _kind_of(block: msgspec.Raw) -> object:
    return (decode_object(bytes(block)) or {}).get("type")


def _is_unsigned(block: msgspec.Raw) -> bool:
    fields = decode_object(bytes(block)) or {}
    signature = fields.get("signature")
    return fields.get("type") == "thinking" and (signature == UNSIGNED or is_carried(signature))


def without_our_reasoning(items: bytes) -> bytes:
    """A response's `input` without reasoning items that we wrote; the same bytes if there is none."""
    try:
        found = VALUES.decode(items)
    except msgspec.DecodeError:
        return items
    kept = [item for item in found if not is_our_reasoning(decode_object(bytes(item)) or {})]
    return items if len(kept) == len(found) else msgspec.json.encode(kept)


def without_reasoning(items: bytes) -> bytes:
    """A response's `input` without any earlier reasoning, nor the ids by which OpenAI would miss it; the same bytes if
    there is none."""
    try:
        found = [MEMBERS.decode(item) for item in VALUES.decode(items)]
    except msgspec.DecodeError:
        return items
    kept = [item for item in found if item.get("type") != _REASONING and not _refers_to_reasoning(item)]
    if len(kept) == len(found):
        return items
    return msgspec.json.encode(
        [{name: item[name] for name in item if name != "id" or item.get("type") not in _TIED} for item in kept]
    )


def _refers_to_reasoning(item: Mapping[str, msgspec.Raw]) -> bool:
    return item.get("type") in _REFERENCE and bytes(item.get("id", b"")).startswith(b'"rs_')


def is_our_reasoning(item: Mapping[str, object]) -> bool:
    """Whether it is a reasoning item that we wrote, or a reference to one."""
    if item.get("type") not in ("reasoning", "item_reference", None):
        return False
    marks = ((text_of(item, "id"), OUR_REASONING), (text_of(item, "encrypted_content"), SEALED))
    return any(text is not None and text.startswith(mark) for text, mark in marks)


def with_every_thought(messages: bytes) -> bytes:
    """A chat's `messages` with reasoning in every assistant message, if tools were called; the same bytes if not, or if
    none lacks it."""
    if b'"tool_calls"' not in messages:
        return messages
    found = objects_in(messages)
    lacking = [message for message in found if _lacks_thought(message)]
    for message in lacking:
        message[THOUGHT] = NOTHING
    return msgspec.json.encode(found) if lacking else messages


def with_signed_calls(messages: bytes) -> bytes:
    """A chat's `messages` with a thought signature in each that calls tools, where Gemini's OpenAI-compatible endpoint
    reads it; the same bytes if none lacks it. Of parallel calls Gemini signs the first."""
    if b'"tool_calls"' not in messages:
        return messages
    try:
        found = OBJECTS.decode(messages)
        lacking = [(message, calls) for message in found if (calls := _unsigned_calls(message))]
        for message, (first, *others) in lacking:
            extra = _members(first.get("extra_content"))
            google = _members(extra.get("google")) | {"thought_signature": _raw(UNKNOWN_SIGNATURE)}
            signed = first | {"extra_content": _raw(extra | {"google": _raw(google)})}
            message["tool_calls"] = _raw([signed, *others])
    except msgspec.DecodeError:  # its provider's to refuse
        return messages
    return msgspec.json.encode(found) if lacking else messages


def with_unknown_signatures(messages: bytes) -> bytes:
    """A chat's `messages` with Gemini's placeholder for every thought signature of a call; the same bytes if there is
    none, or only placeholders."""
    found = objects_in(messages)
    changed = False
    for message in found:
        calls = bytes(message.get("tool_calls", b"null"))
        if b'"thought_signature"' in calls:
            told = [_with_unknown_signature(call) for call in OBJECTS.decode(calls)]
            changed = changed or told != OBJECTS.decode(calls)
            message["tool_calls"] = _raw(told)
    return msgspec.json.encode(found) if changed else messages


def _with_unknown_signature(call: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    extra = _members(call.get("extra_content"))
    google = _members(extra.get("google"))
    if "thought_signature" not in google:
        return call
    return call | {
        "extra_content": _raw(extra | {"google": _raw(google | {"thought_signature": _raw(UNKNOWN_SIGNATURE)})})
    }


def _unsigned_calls(message: Mapping[str, msgspec.Raw]) -> list[dict[str, msgspec.Raw]]:
    """The tool calls of a message, if none of them is signed; else empty."""
    calls = bytes(message.get("tool_calls", b"null"))
    if calls == b"null" or b'"thought_signature"' in calls:
        return []
    return OBJECTS.decode(calls)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _members(value: msgspec.Raw | None) -> dict[str, msgspec.Raw]:
    return {} if value is None or bytes(value) == b"null" else MEMBERS.decode(value)


def _lacks_thought(message: Mapping[str, msgspec.Raw]) -> bool:
    role, thought = message.get("role"), message.get(THOUGHT)
    is_answer = role is not None and bytes(role) == b'"assistant"'
    return is_answer and (thought is None or bytes(thought) in (b"null", b'""'))
