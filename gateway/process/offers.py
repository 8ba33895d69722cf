"""Offers to switch protocols (`Upgrade`), which RFC 9110, 7.8 allows us to ignore: every stock Java client offers
HTTP/2, and browsers offer WebSockets.

The parser treats such a request as the last one in HTTP, its body as data of the other protocol. Parsed again as it
is, that body would be taken for the next request: request smuggling by whoever shares a proxy's connection.
"""

from collections.abc import Iterable
from typing import Final

_OF_LENGTH: Final = frozenset({b"content-length", b"transfer-encoding"})


def head_of_rest(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A head that makes a parser read the body of a request with these headers, already found valid; empty if there is
    no body."""
    lengths = [b"%b: %b\r\n" % header for header in headers if header[0] in _OF_LENGTH and header[1] != b"0"]
    return b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lengths) if lengths else b""
