"""What a chat's message or delta says, also in a list of parts, as at Mistral and Databricks. Pure."""

from collections.abc import Mapping
from typing import Final, cast

import msgspec

from backends.formats.json_objects import Fields, decode_object, objects_of, text_of

_OF_TEXT: Final = frozenset({"reference", "text", "thinking"})
"""Mistral's kinds of parts. Databricks's and others' lists pass as they came: their documents have them, and they may
hold a signature or a picture."""


def said_in(message: Mapping[str, object]) -> tuple[str, str]:
    """(thinking, text), each possibly empty."""
    thinking = text_of(message, "reasoning_content") or text_of(message, "reasoning") or ""
    content = message.get("content")
    if isinstance(content, str):
        return thinking, content
    parts = objects_of(content)
    text = "".join(text_of(part, "text") or "" for part in parts)
    inner = [piece for part in parts for piece in objects_of(part.get("thinking") or part.get("summary"))]
    return thinking + "".join(text_of(piece, "text") or "" for piece in inner), text


def with_one_text(answer: bytes) -> bytes:
    """An answer or event with Mistral's parts as one text, and its thinking as `reasoning_content`; the same bytes if
    there are none. OpenAI's clients expect a text, and many break on a list."""
    document = decode_object(answer) or {}
    said = [choice.get(name) for choice in objects_of(document.get("choices")) for name in ("message", "delta")]
    in_parts = [one for one in objects_of(said) if _is_of_text(one.get("content"))]
    for one in in_parts:
        thinking, text = said_in(one)
        one["content"] = text or None
        if thinking:
            one["reasoning_content"] = thinking
    return msgspec.json.encode(document) if in_parts else answer


def _is_of_text(content: object) -> bool:
    return isinstance(content, list) and _OF_TEXT.issuperset(map(_kind_of, cast(list[object], content)))


def _kind_of(part: object) -> str | None:
    return text_of(cast(Fields, part), "type") if isinstance(part, dict) else None
