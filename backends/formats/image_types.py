"""Pictures under the type that their bytes have: Claude refuses one under another, with every later turn of the
conversation, where OpenAI and Gemini take it. Pure."""

import re
from collections.abc import Mapping
from typing import Final, cast

import msgspec

from backends.formats.json_objects import Fields, part_of, text_of

REFUSED: Final = re.compile(
    rb"image was specified using the \S{1,40} media type|does not match the provided media type", re.IGNORECASE
)
"""How Anthropic, Bedrock and Vertex say it."""
_BEGINNINGS: Final[Mapping[str, str]] = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
}
_DATA, _BASE64 = "data:", ";base64,"
_ENCODED: Final = b"base64"


def with_true_types(messages: bytes) -> bytes:
    """A chat's messages, or those in Anthropic's format; the same bytes if there is nothing to change."""
    if _ENCODED not in messages:
        return messages
    try:
        said: object = msgspec.json.decode(messages)
    except msgspec.DecodeError:  # a number that is too large
        return messages
    made = _typed(said)
    return messages if made == said else msgspec.json.encode(made)


def _typed(said: object) -> object:
    if isinstance(said, list):
        return [_typed(one) for one in cast(list[object], said)]
    if not isinstance(said, dict):
        return said
    fields = cast(Fields, said)
    kind = text_of(fields, "type")
    if kind == "image":
        source = part_of(fields, "source")
        known = _type_of(text_of(source, "data") or "")
        return fields | {"source": {**source, "media_type": known}} if known else fields
    if kind == "image_url":
        named = part_of(fields, "image_url")
        head, found, data = (text_of(named, "url") or "").partition(_BASE64)
        known = _type_of(data) if found and head.startswith(_DATA) else None
        return fields | {"image_url": {**named, "url": f"{_DATA}{known}{_BASE64}{data}"}} if known else fields
    return fields | {"content": _typed(fields["content"])} if isinstance(fields.get("content"), list) else fields


def _type_of(data: str) -> str | None:
    return next((kind for beginning, kind in _BEGINNINGS.items() if data.startswith(beginning)), None)
