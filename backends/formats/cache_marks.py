"""Marks for Anthropic's prompt cache in a body without any. Pure; whether they pay is decided before this is asked.

A mark keeps everything up to it: the tools, then the system prompt, then the messages. What is kept is found again by a
mark at the very place, or at most 20 blocks behind it.
"""

from collections.abc import Iterator
from typing import Final, Literal, cast

from backends.formats.json_objects import Fields

MARK: Final[Fields] = {"type": "ephemeral"}
"""For five minutes from its last use."""


def mark_prompt(body: Fields, marks: Literal["beginning", "conversation"], *, fixed_system: int) -> None:
    """Marks the tools, the system prompt and, of a conversation, the last two messages of its user: what is new is
    written up to the later one, and what the turn before wrote is read up to the earlier one. Four marks are the most
    that Anthropic takes. A body with marks of its caller's stays as it is.

    `fixed_system`: how many blocks of the system prompt stood before all else. Later ones are put before the messages
    here, so that each new one moves them: then only the beginning is the same in the next turn.
    """
    if "cache_control" in body or any("cache_control" in block for block in _blocks(body)):
        return
    system = cast(list[Fields], body.get("system", []))
    _mark_last(cast(list[Fields], body.get("tools", [])))
    _mark_last(system[:fixed_system])
    if marks == "beginning" or fixed_system < len(system):
        return
    users = [message for message in cast(list[Fields], body["messages"]) if message["role"] == "user"]
    for message in users[-2:]:
        _mark_last(cast(list[Fields], message["content"]))


def _mark_last(blocks: list[Fields]) -> None:
    if blocks:
        blocks[-1]["cache_control"] = MARK


def _blocks(body: Fields) -> Iterator[Fields]:
    yield from cast(list[Fields], body.get("tools", []))
    yield from cast(list[Fields], body.get("system", []))
    for message in cast(list[Fields], body["messages"]):
        yield from cast(list[Fields], message["content"])
