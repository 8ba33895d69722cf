"""Anthropic's cache marks as OpenAI's breakpoints, the only places at which its models since GPT-5.6 look for what they
have cached. Pure."""

from collections.abc import Iterable
from typing import Final

from backends.formats.json_objects import Fields, objects_of

NAME: Final = "prompt_cache_breakpoint"
_EXPLICIT: Final[Fields] = {"mode": "explicit"}
_MOST: Final = 3
"""OpenAI takes four, and sets one itself, at the newest message."""
_HAVE_NONE: Final = "assistant"


def mark_breakpoints(messages: Iterable[Fields]) -> bool:
    """Sets a chat's breakpoints where its parts have cache marks, which stay: at the last of them, as each caches all
    before it. A chat with breakpoints of its own is left alone, and answers cannot have any. Says whether it set one.
    """
    parts = [part for one in messages if one.get("role") != _HAVE_NONE for part in objects_of(one.get("content"))]
    if any(NAME in part for part in parts):
        return False
    marked = [part for part in parts if isinstance(part.get("cache_control"), dict)]
    for part in marked[-_MOST:]:
        part[NAME] = _EXPLICIT
    return bool(marked)
