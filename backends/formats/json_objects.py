"""Reads members of untrusted JSON: a value of the wrong type counts as absent and never raises."""

import json
import re
import sys
from collections.abc import Mapping
from typing import Final, cast

import msgspec

Fields = dict[str, object]
_ESCAPED: Final = re.compile(rb"(?<!\\)(?:\\+u[0-9a-fA-F]{4})+")
"""Also inside JSON in a text, as a call's arguments are, which servers read too."""
_ESCAPE: Final = re.compile(rb"\\+u")
LARGEST: Final = sys.float_info.max
NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for bytes that are no JSON, or nested too deeply, or not of its type."""
_LINE_ENDS: Final = tuple((end.encode(), b"\\u%04x" % ord(end)) for end in "\u2028\u2029\x85")
"""What JSON may contain unescaped, but some readers of lines take for the end of one: Google's clients, Python's
`splitlines` and httpx."""


def decode_object(data: bytes) -> Fields | None:
    """The JSON object, or None if the bytes are not one."""
    try:
        document = msgspec.json.decode(data)
    except NOT_JSON:
        return None
    return cast(Fields, document) if isinstance(document, dict) else None


def on_one_line(document: bytes) -> bytes:
    """The same JSON, with what is no line end in JSON escaped where a reader of lines may think so."""
    for line_end in _LINE_ENDS:
        document = document.replace(*line_end)
    return document


def part_of(fields: Mapping[str, object], name: str) -> Mapping[str, object]:
    """A nested object, empty if there is none."""
    value = fields.get(name)
    return cast(Mapping[str, object], value) if isinstance(value, Mapping) else {}


def objects_of(value: object) -> list[Fields]:
    """The objects in a list, other items skipped; empty if it is no list."""
    listed = cast(list[object], value) if isinstance(value, list) else []
    return [cast(Fields, one) for one in listed if isinstance(one, dict)]


def first_of(value: object) -> Fields:
    """The first item of a list, empty if that is no object."""
    listed = cast(list[object], value) if isinstance(value, list) else []
    return cast(Fields, listed[0]) if listed and isinstance(listed[0], dict) else {}


def text_of(fields: Mapping[str, object], name: str) -> str | None:
    """A string member, or None."""
    value = fields.get(name)
    return value if isinstance(value, str) else None


def number(fields: Mapping[str, object], name: str) -> float | int | None:
    """A numeric member that a float can hold, or None: JSON integers are unbounded."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -LARGEST <= value <= LARGEST else None


def integer(fields: Mapping[str, object], name: str) -> int | None:
    """An integer member; `true` is none, though Python counts it as 1."""
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def without_escapes(text: bytes) -> bytes:
    """JSON with its texts as servers repeat them, to search it for words: escapes that need not be hide them, or make
    what stands between them longer. It is not read, since servers take what msgspec refuses (a number beyond a
    float's, half of a surrogate pair)."""
    return _ESCAPED.sub(_repeated, text).replace(b"\\/", b"/")


def _repeated(found: re.Match[bytes]) -> bytes:
    text = bytes.fromhex(_ESCAPE.sub(b"", found[0]).decode()).decode("utf-16-be", "surrogatepass")
    return json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")
