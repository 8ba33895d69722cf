"""Extracts thinking and text from an OpenAI chat message or delta, wherever the provider puts them. Pure."""

from collections.abc import Mapping

from backends.formats.json_objects import objects_of, text_of


def said_in(message: Mapping[str, object]) -> tuple[str, str]:
    """(thinking, text), each possibly empty. Mistral has both as parts of `content`."""
    thinking = text_of(message, "reasoning_content") or text_of(message, "reasoning") or ""
    content = message.get("content")
    if isinstance(content, str):
        return thinking, content
    parts = objects_of(content)
    text = "".join(text_of(part, "text") or "" for part in parts)
    inner = [piece for part in parts for piece in objects_of(part.get("thinking"))]
    return thinking + "".join(text_of(piece, "text") or "" for piece in inner), text
