"""Mends chats in which a turn was broken off: a call without a result, because the agent was stopped, a result without
its call, or an answer without anything. Clients send such turns with every later request. Pure."""

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import msgspec

from backends.formats.json_splice import objects_in

Message = dict[str, msgspec.Raw]
_TOOL, _ASSISTANT = msgspec.Raw(b'"tool"'), msgspec.Raw(b'"assistant"')
_USER: Final = msgspec.Raw(b'"user"')
_INTERRUPTED: Final = msgspec.Raw(b'"Interrupted: this call has no result."')
_OUTPUTS: Final = {
    b'"function_call"': b'"function_call_output"',
    b'"custom_tool_call"': b'"custom_tool_call_output"',
}
"""In a response's `input`, the result of each kind of call."""
_TEXT: Final = msgspec.Raw(b'"text"')
_BLOCKS: Final = msgspec.json.Decoder(list[Message])
_NO_TEXT: Final = msgspec.Raw(b'""')
_NO_OUTPUT: Final = msgspec.Raw(b'"(no output)"')
_NOTHING: Final = (b"", b"null", b'""', b"[]")


def with_every_result(messages: bytes) -> bytes:
    """Each call's result right after it: one that stands later, before the next answer, or a word that there is none. A
    result without a call becomes a user's message, as does one that comes twice."""
    found = objects_in(messages)
    starts = [place for place, one in enumerate(found) if one.get("role") == _ASSISTANT]
    made = _without_results(found[: starts[0] if starts else len(found)], {})
    for start, end in pairwise([*starts, len(found)]):
        answer, after = found[start], found[start + 1 : end]
        calls = [call["id"] for call in objects_in(answer.get("tool_calls", b"[]")) if "id" in call]
        results: dict[bytes, Message] = {}
        for one in after:
            if one.get("role") == _TOOL:
                results.setdefault(bytes(one.get("tool_call_id", b"")), one)
        used = {bytes(call_id): results[bytes(call_id)] for call_id in calls if bytes(call_id) in results}
        made.append(answer)
        for call_id in calls:
            none: Message = {"role": _TOOL, "tool_call_id": call_id, "content": _INTERRUPTED}
            made.append(used.get(bytes(call_id), none))
        made += _without_results(after, used)
    return messages if made == found else msgspec.json.encode(made)


def _without_results(messages: list[Message], used: dict[bytes, Message]) -> list[Message]:
    """Without those results, and with others as a user's messages."""
    left = [one for one in messages if used.get(bytes(one.get("tool_call_id", b""))) is not one]
    return [
        {"role": _USER, "content": one.get("content", _NO_TEXT)} if one.get("role") == _TOOL else one for one in left
    ]


def with_every_output(items: bytes, *, is_whole: bool) -> bytes:
    """The same of a response's `input`, where results need not come at once. If the conversation `is_whole`, a result
    whose call is not in it becomes a user's message."""
    found = objects_in(items)
    calls = {_call_id(one) for one in found if _kind(one) in _OUTPUTS}
    results = {_call_id(one) for one in found if _kind(one) in _OUTPUTS.values()}
    made: list[Message] = []
    waiting: list[Message] = []
    for one in found:
        output = _OUTPUTS.get(_kind(one))
        if output is None:
            made += waiting
            waiting = []
        elif _call_id(one) not in results:
            called = msgspec.Raw(_call_id(one))
            waiting.append({"type": msgspec.Raw(output), "call_id": called, "output": _INTERRUPTED})
        is_alone = is_whole and _kind(one) in _OUTPUTS.values() and _call_id(one) not in calls
        made.append({"role": _USER, "content": one.get("output", _NO_TEXT)} if is_alone else one)
    made += waiting
    return items if made == found else msgspec.json.encode(made)


def _kind(item: Message) -> bytes:
    return bytes(item.get("type", b""))


def _call_id(item: Message) -> bytes:
    return bytes(item.get("call_id", _NO_TEXT))


def without_empty_answers(messages: bytes) -> bytes:
    """Without answers that say and call nothing. Of others, no empty list of calls, and a text beside calls."""
    found = objects_in(messages)
    made: list[Message] = []
    for message in found:
        if message.get("role") != _ASSISTANT:
            made.append(message)
            continue
        has_calls = _has_calls(message)
        says_nothing = bytes(message.get("content", b"")) in _NOTHING
        if says_nothing and not has_calls:
            continue
        if bytes(message.get("tool_calls", b"x")) in _NOTHING:
            message = {name: value for name, value in message.items() if name != "tool_calls"}
        made.append(message | {"content": _NO_TEXT} if says_nothing else message)
    return messages if made == found else msgspec.json.encode(made)


def without_empty_messages(messages: bytes) -> bytes:
    """Without messages that say and call nothing. A tool's result of nothing says so."""
    return _with_each(messages, _told)


def _told(message: Message) -> Message | None:
    said = None if bytes(message.get("content", b"")) in _NOTHING else _with_said(message)
    if said is None and message.get("role") == _TOOL:
        return message | {"content": _NO_OUTPUT}
    return message if said is None and _has_calls(message) else said


def _has_calls(message: Message) -> bool:
    return bytes(message.get("tool_calls", b"")) not in _NOTHING or "function_call" in message


def without_empty_texts(messages: bytes) -> bytes:
    """Messages in Anthropic's format, which refuses texts of nothing or white space: without those, and without
    messages of nothing else."""
    return _with_each(messages, _with_said)


def _with_each(messages: bytes, told: Callable[[Message], Message | None]) -> bytes:
    """Each message as told, without those of which nothing is left; the same bytes if none would be left."""
    found = objects_in(messages)
    try:
        made = [message for one in found if (message := told(one)) is not None]
    except msgspec.DecodeError:  # its provider's to refuse
        return messages
    return messages if made == found or not made else msgspec.json.encode(made)


def _with_said(message: Message) -> Message | None:
    content = message.get("content", _NO_TEXT)
    if not bytes(content).startswith(b"["):
        return None if _is_blank({"type": _TEXT, "text": content}) else message
    blocks = _BLOCKS.decode(content)
    kept = [block for block in blocks if not _is_blank(block)]
    if len(kept) == len(blocks) > 0:
        return message
    return message | {"content": msgspec.Raw(msgspec.json.encode(kept))} if kept else None


def _is_blank(block: Message) -> bool:
    said: object = msgspec.json.decode(block.get("text", b"0")) if block.get("type") == _TEXT else None
    return isinstance(said, str) and not said.strip()
