"""Extracts the texts of a body's messages, items and blocks, and finds media among them. Pure; counts no tokens."""

from collections.abc import Iterable, Iterator
from typing import Final, cast

import msgspec

from gateway.request.bodies import Block, Item, OutputPart, Part, Turn

DEEPEST_BLOCKS: Final = 6
"""The deepest nesting of blocks in any form that Anthropic documents."""

IMAGES: Final = frozenset({"input_image", "computer_screenshot"})
"""Types of item parts that are images."""

WRITTEN_OUT: Final = frozenset(
    {
        "text",
        "input_text",
        "output_text",
        "refusal",
        "thinking",
        "reasoning_text",
        "summary_text",
        "image_url",
        "encrypted_content",
        *IMAGES,
    }
)
"""Types of parts whose length bounds their tokens, unlike files, recordings and videos."""


_WITH_TEXTS: Final = ("content", "source", "stdout", "stderr")
"""Members that hold the texts of documents, search results and programs' outputs."""


def said(turn: Turn) -> Iterator[tuple[str, str]]:
    """(role, text) of a turn; tool results come first, as a turn of their own."""
    if isinstance(turn.content, str):
        yield turn.role, turn.content
        return
    if turn.content is None:
        return
    results = [text for block in turn.content if block.type.endswith("_result") for text in _inner_texts(block.content)]
    texts = [block.text for block in turn.content if block.text]
    texts += [text for block in turn.content if block.type == "document" for text in _inner_texts(block.source)]
    if results:
        yield "tool", "\n".join(results)
    if texts or not results:
        yield turn.role, "\n".join(texts)


def _inner_texts(value: object, levels: int = DEEPEST_BLOCKS) -> Iterator[str]:
    """The texts of a tool result or a document's source, in any of their forms."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and levels:
        for item in cast(list[object], value):
            yield from _inner_texts(item, levels - 1)
    elif isinstance(value, dict) and levels:
        fields = cast(dict[str, object], value)
        if fields.get("type") == "text":
            yield from _inner_texts(fields.get("text") or fields.get("data"), levels - 1)
            return
        for name in _WITH_TEXTS:
            yield from _inner_texts(fields.get(name), levels - 1)


def with_shown(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks, and the images and documents inside tool results."""
    for block in blocks:
        yield block
        if block.type == "tool_result" and isinstance(block.content, list):
            for item in cast(list[object], block.content):
                fields = cast(dict[str, object], item) if isinstance(item, dict) else {}
                if (kind := fields.get("type")) in ("image", "document"):
                    yield Block(str(kind), source=fields.get("source"))


def is_media(block: Block) -> bool:
    """An image, or a document that is not plain text."""
    return block.type == "image" or (block.type == "document" and not any(_inner_texts(block.source)))


def is_open_ended(parts: Iterable[Part]) -> bool:
    """Whether the number of tokens cannot be bounded here."""
    return any(part.type not in WRITTEN_OUT for part in parts)


def image_bytes(parts: Iterable[Part]) -> int:
    """The bytes of images, whose tokens depend on the picture and not on the bytes."""
    return sum(len(memoryview(part.image_url)) for part in parts)


def image_bytes_of_blocks(blocks: Iterable[Block]) -> int:
    """The same for Anthropic's blocks, including images in tool results."""
    return sum(_image_bytes({"type": block.type, "source": block.source, "content": block.content}) for block in blocks)


def _image_bytes(value: object, levels: int = DEEPEST_BLOCKS) -> int:
    if isinstance(value, list) and levels:
        return sum(_image_bytes(item, levels - 1) for item in cast(list[object], value))
    if not isinstance(value, dict) or not levels:
        return 0
    fields = cast(dict[str, object], value)
    if fields.get("type") != "image":
        return _image_bytes(fields.get("content"), levels - 1)
    source = fields.get("source")
    data = cast(dict[str, object], source).get("data") if isinstance(source, dict) else None
    return len(data) if isinstance(data, str) else 0


def item_parts(item: Item) -> Iterator[Part]:
    """The parts of its content, then those of its output."""
    for content in (item.content, item.output):
        if isinstance(content, Part):
            yield content
        elif isinstance(content, list):
            yield from content


def item_texts(item: Item) -> Iterator[str]:
    yield from texts_of(item.content)
    yield from _output_texts(item.output)
    for given in (item.arguments, item.input, item.operation):
        if isinstance(given, str):
            yield given
        elif given is not None:
            yield msgspec.json.encode(given).decode()


def _output_texts(output: str | list[OutputPart] | OutputPart | None) -> Iterator[str]:
    if isinstance(output, str):
        yield output
    elif isinstance(output, list):
        yield from (text for part in output for text in (part.text, part.stdout, part.stderr) if text)


def texts_of(content: str | list[Part] | None) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        said = (part.text or part.encrypted_content for part in content)
        yield from (text for text in said if isinstance(text, str) and text)
