"""Adds Anthropic's prompt cache marks to a body that has none. Pure; whether caching pays is decided elsewhere.

A mark caches everything before it: the tools, then the system prompt, then the messages. A later request hits the cache
with a mark at the same place, or at most 20 blocks after it.
"""

from collections.abc import Iterator
from typing import Final, Literal, cast

from backends.formats.json_objects import Fields

MARK: Final[Fields] = {"type": "ephemeral"}
"""Lasts five minutes from its last use."""


def mark_prompt(body: Fields, marks: Literal["beginning", "conversation"], *, fixed_system: int) -> None:
    """Marks the tools, the system prompt and, in a conversation, the last two user messages: the later mark writes this
    turn's new part, the earlier one reads what the previous turn wrote. Anthropic takes at most four marks. A body that
    the caller has marked is left alone.

    `fixed_system`: how many system blocks came before the first message. If there are later ones, each of them moves
    the messages, since all system blocks are sent first: then only the tools and the fixed blocks are marked.
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
