"""Responses to connections that send no valid request, or no valid Host header. Knows no connection."""

import re
from collections.abc import Iterable
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
    "This is no valid HTTP/1.1 request; see to its first line, its headers and the length of its body.",
)
NO_HOST: Final = _refusal(
    "400 Bad Request", "HTTP/1.1 asks for one Host header with the name of the server; send it once."
)
_HOST: Final = re.compile(rb"[A-Za-z0-9\-._~!$&'()*+,;=%:\[\]]*")
"""https://www.rfc-editor.org/rfc/rfc3986#section-3.2.2 with an optional port; may be empty."""


def names_its_host(headers: Iterable[tuple[bytes, bytes]], http_version: str) -> bool:
    """As https://www.rfc-editor.org/rfc/rfc9112#section-3.2 demands: a proxy on either side may pick the other of two
    Host headers. HTTP/1.0 requires none."""
    host = None
    for name, value in headers:
        if name == b"host":
            if host is not None:
                return False
            host = value
    return http_version == "1.0" if host is None else _HOST.fullmatch(host) is not None
