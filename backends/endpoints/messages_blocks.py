"""Translates the messages of a Messages request to a chat's. Pure."""

import re
from collections.abc import Iterator
from typing import Final, cast

import msgspec

from backends.endpoints.function_names import name_for_chats
from backends.endpoints.messages_fields import invalid, list_of, named, object_of, unsayable
from backends.endpoints.messages_tools import TOOL_CHANGES
from backends.formats.json_objects import Fields, part_of, text_of
from backends.formats.past_thinking import DETAILS, THOUGHT, detail_of, is_carried, name_thoughts

_TOOL_FOUND: Final = "tool_reference"
_SILENT: Final = ("redacted_thinking", "fallback")
"""Blocks of an answer that say nothing. The second marks where another model went on."""
_BILLING_LINE: Final = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n?")


def messages_of(fields: Fields) -> Iterator[Fields]:
    """The system text and all messages, as a chat's. Raises as `chat_body_from_messages`."""
    yield from _system(fields)
    messages = list_of(fields, "messages")
    if not messages:
        raise invalid("messages", "needs at least one message")
    for place, item in enumerate(messages):
        where = f"messages[{place}]"
        message = object_of(item, where)
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant", "system"):
            raise invalid(f"{where}.role", "must be user or assistant")
        if isinstance(content, str):
            yield {"role": role, "content": content}
            continue
        if content is None and role == "system":  # only changes the effort from here on
            continue
        blocks = [object_of(block, f"{where}.content") for block in list_of(message, "content", where)]
        blocks = [block for block in blocks if block.get("type") not in TOOL_CHANGES]
        yield from _assistant(blocks, where) if role == "assistant" else _user(cast(str, role), blocks, where)


def chat_messages(message: Fields) -> list[Fields]:
    """One message as a chat's. Raises as `chat_body_from_messages`."""
    return [name_thoughts(said, ()) for said in messages_of({"messages": [message]})]


def without_billing_line(system: str) -> str:
    """The system text without the first line that some agents add for Anthropic's billing. The line differs by
    conversation or request, so a prompt cache could not match anything after it."""
    return _BILLING_LINE.sub("", system)


def _system(fields: Fields) -> Iterator[Fields]:
    system = fields.get("system")
    if isinstance(system, str):
        content: object = without_billing_line(system)
    else:
        parts = [_text_part(block, "system") for block in list_of(fields, "system")]
        if parts:
            first = without_billing_line(cast(str, parts[0]["text"]))
            parts = [parts[0] | {"text": first}, *parts[1:]] if first else parts[1:]
        content = parts
    if content:
        yield {"role": "system", "content": content}


def _assistant(blocks: list[Fields], where: str) -> Iterator[Fields]:
    text: list[str] = []
    thought: list[str] = []
    calls: list[Fields] = []
    details: list[Fields] = []
    for place, block in enumerate(blocks):
        kind = block.get("type")
        if kind == "text":
            text.append(text_of(block, "text") or "")
        elif kind == "tool_use":
            arguments = msgspec.json.encode(block.get("input") or {}).decode()
            name = name_for_chats(named(block, "name", f"{where}.content"))
            function = {"name": name, "arguments": arguments}
            calls.append({"id": named(block, "id", f"{where}.content"), "type": "function", "function": function})
        elif kind == "thinking":  # the signature is dropped unless we wrote it: no other provider can read it
            thought.append(text_of(block, "thinking") or "")
            if is_carried(signature := block.get("signature")):
                details.append(detail_of(cast(str, signature), place))
        elif kind not in _SILENT:
            raise unsayable(f"{where}.content", f"a block of type {kind!r} cannot be sent to this model")
    thinking = "\n\n".join(filter(None, thought))
    message: Fields = {"role": "assistant", "content": "".join(text) or None, THOUGHT: thinking}
    message |= {DETAILS: details} if details else {}
    if calls:
        yield message | {"tool_calls": calls}
    elif text:
        yield message


def _user(role: str, blocks: list[Fields], where: str) -> Iterator[Fields]:
    """A message for each tool result, as chats require, then one with all other blocks."""
    parts: list[Fields] = []
    for block in blocks:
        if block.get("type") == "tool_result":
            text, media = _tool_result(block, where)
            cache = block.get("cache_control")
            content = [{"type": "text", "text": text, "cache_control": cache}] if isinstance(cache, dict) else text
            yield {"role": "tool", "tool_call_id": named(block, "tool_use_id", f"{where}.content"), "content": content}
            parts += media
        else:
            context = text_of(block, "context") if block.get("type") == "document" else None
            if context:
                parts.append({"type": "text", "text": context})
            parts.append(_part(block, where))
    if parts:
        yield {"role": role, "content": parts}


def _tool_result(block: Fields, where: str) -> tuple[str, list[Fields]]:
    """(the result's text, its images). Only user messages may have images, so these go into the one that follows."""
    content = block.get("content")
    failed = "Error: " if block.get("is_error") is True else ""
    if content is None or isinstance(content, str):
        return failed + (content or ""), []
    items = [object_of(item, f"{where}.content") for item in list_of(block, "content", where)]
    text = "".join(text_of(item, "text") or "" for item in items if item.get("type") == "text")
    found = [_tool_found(item, where) for item in items if item.get("type") == _TOOL_FOUND]
    media = [_part(item, where) for item in items if item.get("type") not in ("text", _TOOL_FOUND)]
    return failed + "\n".join(filter(None, (text, *found))), media


def _tool_found(item: Fields, where: str) -> str:
    """What a client's search of tools found. Chats offer them all."""
    return f"The tool {name_for_chats(named(item, 'tool_name', f'{where}.content'))} can be called."


def _part(block: Fields, where: str) -> Fields:
    kind = block.get("type")
    if kind == "text":
        return _text_part(block, where)
    if kind == "search_result":
        return {"type": "text", "text": _search_result(block, where)}
    if kind not in ("image", "document"):
        raise unsayable(f"{where}.content", f"a block of type {kind!r} cannot be sent to this model")
    source = part_of(block, "source")
    if source.get("type") == "file":
        raise unsayable(f"{where}.content", "a file id is not valid for this model; send the content")
    if source.get("type") in ("text", "content"):
        is_text = source.get("type") == "text"
        text = (text_of(source, "data") or "") if is_text else _plain(dict(source), f"{where}.content")
        return {"type": "text", "text": "\n".join(filter(None, (text_of(block, "title"), text)))}
    inline = f"data:{source.get('media_type')};base64,{source.get('data')}"
    url = text_of(source, "url") if source.get("type") == "url" else inline
    if source.get("type") not in ("url", "base64") or not url:
        raise invalid(f"{where}.content", "its source must be base64, url or text")
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    if source.get("type") == "url":
        raise unsayable(f"{where}.content", "a document given by its URL cannot be sent to this model")
    return {"type": "file", "file": {"filename": text_of(block, "title") or "document.pdf", "file_data": url}}


def _search_result(block: Fields, where: str) -> str:
    """Its title, source and text, so that an answer can cite it."""
    head = [text for name in ("title", "source") if (text := text_of(block, name))]
    return "\n".join([*head, _plain(block, where)])


def _plain(fields: Fields, where: str) -> str:
    """The text of a `content` that is a string or a list of text blocks."""
    content = fields.get("content")
    if isinstance(content, str):
        return content
    blocks = [object_of(block, where) for block in list_of(fields, "content", where)]
    if any(block.get("type") != "text" for block in blocks):
        raise unsayable(where, "only text can be sent to this model here")
    return "".join(text_of(block, "text") or "" for block in blocks)


def _text_part(block: object, where: str) -> Fields:
    fields = object_of(block, where)
    text = text_of(fields, "text")
    if text is None:
        raise invalid(where, "a text block must have a text")
    cache = fields.get("cache_control")
    part: Fields = {"type": "text", "text": text}
    return part | ({"cache_control": cache} if isinstance(cache, dict) else {})
