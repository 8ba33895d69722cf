"""Offers to go on in another protocol (`Upgrade`), which RFC 9110, 7.8 lets us ignore: every stock Java client offers
HTTP/2, and browsers offer WebSockets.

The parser takes such a request for the last one in HTTP, and its body for the other protocol's: read on as it stands,
that body would be the next request, in the name of whoever shares the connection through a proxy.
"""

from collections.abc import Iterable
from typing import Final

_OF_LENGTH: Final = frozenset({b"content-length", b"transfer-encoding"})


def head_of_rest(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A head that makes a parser read the body of a request with these headers, which it has found valid; nothing
    where there is no body."""
    lengths = [b"%b: %b\r\n" % header for header in headers if header[0] in _OF_LENGTH and header[1] != b"0"]
    return b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lengths) if lengths else b""
