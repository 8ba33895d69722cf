"""Clients that offer to go on in HTTP/2 over the same connection (every stock Java one does) are served as they came.

The parser takes such a request for the last one in HTTP and never looks at its body. RFC 9110, 7.8 lets us ignore the
offer.
"""

import re
from typing import Final

_HEAD_BYTES: Final = 8192
"""Looked at in what comes at once; these clients send their head in one piece, the offer near its beginning."""
_OFFER: Final = re.compile(rb"\r\nupgrade:(?=[ \t]*h2c[ \t]*\r\n)", re.IGNORECASE)
_UNKNOWN: Final = b"\r\nx-offer:"
"""As long, so that nothing moves."""


def without_offer(data: bytes) -> bytes:
    """What came from a client, the offer under a name that nobody knows."""
    if data.find(b"h2c", 0, _HEAD_BYTES) < 0:
        return data
    head, end, rest = data.partition(b"\r\n\r\n")
    return _OFFER.sub(_UNKNOWN, head + end) + rest
