"""In which characters a body came, and what is said of one that cannot be read. Pure; knows no field."""

import codecs
import re
from typing import Final

from gateway.errors import InvalidRequest

_LONE: Final = re.compile(
    rb"\\u(?:[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u(?![dD][c-fC-F])[0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u)[dD][c-fC-F][0-9a-fA-F]{2})"
)
"""An escaped half of a character whose other half does not follow, or did not precede. Not at the end of a cut body."""
_LOOKED_AT_BYTES: Final = 4 << 20
"""For such a half. A longer search would keep others waiting for the sake of a sentence."""


def without_byte_order_mark(body: bytes) -> bytes:
    """https://www.rfc-editor.org/rfc/rfc8259#section-8.1 lets us ignore a mark and forbids us to send one on."""
    return body.removeprefix(codecs.BOM_UTF8)


def unreadable(body: bytes, error: Exception) -> InvalidRequest:
    """What to tell whose body is no JSON, of what the parser said."""
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
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:  # else the backslash is itself escaped
            return found[0].decode("ascii")
    return None


def _wide_encoding(start: bytes) -> str | None:
    """By its mark, or by the zeros beside its first character, which is ASCII in every JSON text."""
    if start in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE) or start.count(b"\0") == 3:
        return "UTF-32"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in start[:2]:
        return "UTF-16"
    return None
