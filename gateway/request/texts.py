"""What is written in a body: the texts of its messages, items and blocks. Pure; counts nothing."""

from collections.abc import Iterator
from typing import Final, cast

from gateway.request.bodies import Block, Item, Part, Turn

DEEPEST_BLOCKS: Final = 6
"""How far blocks lie inside each other in any form that Anthropic documents."""


def said(turn: Turn) -> Iterator[tuple[str, str]]:
    """(role, text) of a turn; what tools gave comes first, as a turn of theirs."""
    if isinstance(turn.content, str):
        yield turn.role, turn.content
        return
    results = [text for block in turn.content if block.type.endswith("_result") for text in _inner_texts(block.content)]
    texts = [block.text for block in turn.content if block.text]
    texts += [text for block in turn.content if block.type == "document" for text in _inner_texts(block.source)]
    if results:
        yield "tool", "\n".join(results)
    if texts or not results:
        yield turn.role, "\n".join(texts)


def _inner_texts(value: object, levels: int = DEEPEST_BLOCKS) -> Iterator[str]:
    """The text of a tool's result or of a document's source, whichever of its forms it has."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and levels:
        for item in cast(list[object], value):
            yield from _inner_texts(item, levels - 1)
    elif isinstance(value, dict) and levels:
        fields = cast(dict[str, object], value)
        if fields.get("type") == "text":
            yield from _inner_texts(fields.get("text") or fields.get("data"), levels - 1)
        elif fields.get("type") == "content":
            yield from _inner_texts(fields.get("content"), levels - 1)


def is_media(block: Block) -> bool:
    """An image, or a document that is not plain text."""
    return block.type == "image" or (block.type == "document" and not any(_inner_texts(block.source)))


def item_texts(item: Item) -> Iterator[str]:
    yield from texts_of(item.content)
    yield from texts_of(item.output)
    if item.arguments:
        yield item.arguments


def texts_of(content: str | list[Part] | None) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif content is not None:
        yield from (part.text for part in content if part.text)
