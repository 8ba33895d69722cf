"""Responses to connections that send no valid request, or one whose head is refused. Knows no connection."""

import re
from collections.abc import Iterable, Sequence
from typing import Final


def _refusal(status: str, sentence: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\n"
    return f"{head}content-length: {len(sentence) + 1}\r\nconnection: close\r\n\r\n{sentence}\n".encode("ascii")


HEAD_TOO_LONG: Final = _refusal(
    "431 Request Header Fields Too Large", "The head of this request is too long; send shorter headers."
)
HEAD_TOO_SLOW: Final = _refusal("408 Request Timeout", "The head of this request did not come in time; send it again.")
NO_REQUEST: Final = _refusal(
    "400 Bad Request",
    "This is not a valid HTTP/1.1 request; check its first line, its headers and the length of its body.",
)
NO_HOST: Final = _refusal(
    "400 Bad Request", "HTTP/1.1 asks for one Host header with the name of the server; send it once."
)
SEVERAL_KEYS: Final = _refusal(
    "400 Bad Request", "A header with the API key came twice; send it once, as either of two could be the one meant."
)
URL_TOO_LONG: Final = _refusal(
    "414 URI Too Long", "The address of this request is too long; send what it says in the body."
)
UNKNOWN_CODING: Final = _refusal(
    "501 Not Implemented", "Of transfer codings only chunked is known here; a compressed body takes Content-Encoding."
)
LONGEST_URL_BYTES: Final = 1 << 15
_KEYS: Final = frozenset({b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"x-litellm-api-key"})
_CODING: Final = b"transfer-encoding"
_HOST: Final = re.compile(rb"[A-Za-z0-9\-._~!$&'()*+,;=%:\[\]]*")
"""https://www.rfc-editor.org/rfc/rfc3986#section-3.2.2 with an optional port; may be empty."""


def with_headers(refusal: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """With those of every response: https://www.rfc-editor.org/rfc/rfc9110#section-6.6.1 requires a date."""
    return refusal.replace(b"\r\n", b"\r\n%b" % b"".join([b"%b: %b\r\n" % header for header in headers]), 1)


def refusal_of(url: bytes, headers: Sequence[tuple[bytes, bytes]], http_version: str) -> bytes | None:
    """What to answer to a head that is valid HTTP, if it is refused.

    https://www.rfc-editor.org/rfc/rfc9112#section-3.2 demands one Host header, except of HTTP/1.0: a proxy on either
    side may pick the other of two, and of two keys as well. Section 6.1 asks for 501 where a body would come in a
    coding we do not decode.
    """
    if len(url) > LONGEST_URL_BYTES:
        return URL_TOO_LONG
    by_name = dict(headers)
    if len(by_name) < len(headers):  # only then does one look at each of what may be dozens
        names = [name for name, _ in headers]
        if names.count(b"host") > 1:
            return NO_HOST
        if any(names.count(key) > 1 for key in _KEYS):
            return SEVERAL_KEYS
    if _CODING in by_name and any(name == _CODING and value.strip().lower() != b"chunked" for name, value in headers):
        return UNKNOWN_CODING
    host = by_name.get(b"host")
    is_named = http_version == "1.0" if host is None else _HOST.fullmatch(host) is not None
    return None if is_named else NO_HOST
