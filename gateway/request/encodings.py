"""Character encodings of bodies, and error messages for bodies that are not JSON. Pure; knows no fields."""

import codecs
import re
from typing import Final

from gateway.errors import InvalidRequest

_LONE: Final = re.compile(
    rb"\\u(?:[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u(?![dD][c-fC-F])[0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u)[dD][c-fC-F][0-9a-fA-F]{2})"
)
"""A lone surrogate escape: half of a character without its other half. Not matched at the end of a cut body."""
_LOOKED_AT_BYTES: Final = 4 << 20
"""How far lone surrogates are searched: a longer search would delay other requests for the sake of a message."""


def without_byte_order_mark(body: bytes) -> bytes:
    """RFC 8259 §8.1 allows us to ignore the mark and forbids sending one."""
    return body.removeprefix(codecs.BOM_UTF8)


def unreadable(body: bytes, error: Exception) -> InvalidRequest:
    """The error for a body that is not JSON; `error` is the parser's."""
    return InvalidRequest(_sentence(body, error), code="invalid_json")


def _sentence(body: bytes, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "The body is nested too deeply."
    if not body.strip():
        return "The body is empty. Send a JSON object."
    if (name := _wide_encoding(body[:4])) is not None:
        return f"The body is {name} text. Send JSON in UTF-8."
    if isinstance(error, UnicodeDecodeError):
        return f"The body is not UTF-8 text ({error.reason}). Send JSON in UTF-8."
    if (half := _half_character(body)) is not None:
        return f"The body is not valid JSON: {half} is half of a character; send its other half too, or neither."
    return f"The body is not valid JSON: {error}."


def _half_character(body: bytes) -> str | None:
    for found in _LONE.finditer(body, 0, _LOOKED_AT_BYTES):
        before = body[max(found.start() - 64, 0) : found.start()]
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:  # otherwise the backslash is itself escaped
            return found[0].decode("ascii")
    return None


def _wide_encoding(start: bytes) -> str | None:
    """By its byte order mark, or by the zero bytes of its first character, which is ASCII in any JSON text."""
    if start in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE) or start.count(b"\0") == 3:
        return "UTF-32"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in start[:2]:
        return "UTF-16"
    return None
