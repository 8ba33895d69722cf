"""What an OpenAI chat message or delta says, its thinking and its text, wherever its provider puts them. Pure."""

from collections.abc import Mapping
from typing import cast

from backends.formats.json_objects import Fields, text_of


def said_in(message: Mapping[str, object]) -> tuple[str, str]:
    """(thinking, text), each empty where there is none. Mistral has both as parts of `content`."""
    thinking = text_of(message, "reasoning_content") or text_of(message, "reasoning") or ""
    content = message.get("content")
    if isinstance(content, str):
        return thinking, content
    parts = _objects(content)
    text = "".join(text_of(part, "text") or "" for part in parts)
    inner = [piece for part in parts for piece in _objects(part.get("thinking"))]
    return thinking + "".join(text_of(piece, "text") or "" for piece in inner), text


def _objects(value: object) -> list[Fields]:
    found = cast(list[object], value) if isinstance(value, list) else []
    return [cast(Fields, item) for item in found if isinstance(item, dict)]
