"""How an OpenAI chat answer ends and calls, in whichever way its provider says it. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from backends.formats.json_objects import text_of

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
