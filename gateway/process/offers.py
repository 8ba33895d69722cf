"""Offers to switch protocols (`Upgrade`). A WebSocket is opened where the application takes one; all others are
ignored, as RFC 9110, 7.8 allows: every stock Java client offers HTTP/2.

The parser treats such a request as the last one in HTTP, its body as data of the other protocol. Parsed again as it
is, that body would be taken for the next request: request smuggling by whoever shares a proxy's connection.
"""

import re
from collections.abc import Iterable
from typing import Final

_OF_LENGTH: Final = frozenset({b"content-length", b"transfer-encoding"})
_SOCKET_KEY: Final = re.compile(rb"[A-Za-z0-9+/]{22}==")


def head_of_rest(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A head that makes a parser read the body of a request with these headers, already found valid; empty if there is
    no body."""
    lengths = [b"%b: %b\r\n" % header for header in headers if header[0] in _OF_LENGTH and header[1] != b"0"]
    return b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lengths) if lengths else b""


def socket_key_of(method: bytes, http_version: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The key of a whole and valid offer of a WebSocket (https://www.rfc-editor.org/rfc/rfc6455#section-4.2.1)."""
    given = dict(headers)
    if (
        method != b"GET"
        or http_version != "1.1"
        or given.get(b"upgrade", b"").lower() != b"websocket"
        or given.get(b"sec-websocket-version") != b"13"
        or head_of_rest(given.items())
    ):
        return None
    key = given.get(b"sec-websocket-key", b"")
    return key if _SOCKET_KEY.fullmatch(key) else None
