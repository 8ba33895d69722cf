"""What an OpenAI chat message or delta says, in whichever way its provider says it. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from backends.formats.json_objects import objects_of, text_of

_ENDS: Final[Mapping[str, str]] = {
    "model_context_window_exceeded": "length",
    "model_length": "length",
    "sensitive": "content_filter",
}
"""Finish reasons of Z.ai and Mistral, and OpenAI's for the same. Gemini's compatible endpoint adds its own reason:
`content_filter: PROHIBITED_CONTENT`."""


def end_of(finish_reason: object) -> str | None:
    """The finish reason in OpenAI's words, as far as they have one."""
    reason = finish_reason if isinstance(finish_reason, str) else None
    return None if reason is None else _ENDS.get(reason, reason.partition(":")[0])


def arguments_in(function: Mapping[str, object]) -> str | None:
    """A call's arguments, or a piece of them. llama.cpp sent an object for a while, in March 2026."""
    said = function.get("arguments")
    return msgspec.json.encode(said).decode() if isinstance(said, dict) and said else text_of(function, "arguments")


def said_in(message: Mapping[str, object]) -> tuple[str, str]:
    """(thinking, text), each possibly empty. Mistral and Databricks have both as parts of `content`."""
    thinking = text_of(message, "reasoning_content") or text_of(message, "reasoning") or ""
    content = message.get("content")
    if isinstance(content, str):
        return thinking, content
    parts = objects_of(content)
    text = "".join(text_of(part, "text") or "" for part in parts)
    inner = [piece for part in parts for piece in objects_of(part.get("thinking") or part.get("summary"))]
    return thinking + "".join(text_of(piece, "text") or "" for piece in inner), text
