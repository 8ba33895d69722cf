"""Decompresses bodies: for authenticated senders only, up to a limit, counted as memory in use. Knows no endpoint."""

import asyncio
import zlib
from collections.abc import Callable
from typing import Final

from gateway.api.shedding import Load
from gateway.errors import BodyTooLarge, InvalidRequest, UnsupportedEncoding

DETECT: Final = 32 + zlib.MAX_WBITS
"""Makes zlib detect gzip or zlib's own format, which HTTP calls deflate."""
KNOWN: Final = (b"gzip", b"x-gzip", b"deflate")
LARGEST_RATIO: Final = 1032
"""Deflate expands a byte to at most this many."""
MOST_MEMBERS: Final = 100
"""The most compressed members in one body: each copies the rest, so a million empty ones would take minutes."""


class Unpacker:
    """`authenticate` raises Unauthenticated: a stranger's small body may expand to a large one, so it stays packed."""

    def __init__(self, load: Load, authenticate: Callable[[str | None], object], *, max_bytes: int) -> None:
        self._load = load
        self._authenticate = authenticate
        self._max_bytes = max_bytes

    def hold(self, body: bytes, encoding: bytes, credential: str | None) -> int:
        """Reserves the memory that unpacking may take, in bytes, until `release`. Raises RequestError."""
        if encoding.strip().lower() not in KNOWN:
            raise UnsupportedEncoding(
                f"The content-encoding {encoding.decode('latin-1')[:40]!r} is not supported. Send the body with gzip, "
                "with deflate or uncompressed."
            )
        self._authenticate(credential)
        size = min(self._max_bytes, LARGEST_RATIO * len(body))
        self._load.buffered_bytes += size
        return size

    async def unpack(self, body: bytes) -> bytes:
        """Runs off the event loop. Raises BodyTooLarge or InvalidRequest."""
        return await asyncio.to_thread(unpack, body, self._max_bytes)

    def release(self, size: int) -> None:
        self._load.buffered_bytes -= size


def unpack(body: bytes, limit: int) -> bytes:
    """Unpacks gzip or deflate, all members in turn. Raises BodyTooLarge or InvalidRequest."""
    parts: list[bytes] = []
    size = 0
    while body:
        if len(parts) == MOST_MEMBERS:
            raise InvalidRequest(
                f"The body is compressed in more than {MOST_MEMBERS} pieces. Compress it as one.",
                param="content-encoding",
                code="invalid_encoding",
            )
        stream = zlib.decompressobj(DETECT)
        try:
            part = stream.decompress(body, limit - size + 1)
        except zlib.error as error:
            raise _broken() from error
        size += len(part)
        if size > limit:
            raise BodyTooLarge(
                f"The body is larger than {limit:,} bytes when decompressed. Send less, or raise "
                "server.max_body_megabytes in breakeven.yaml.",
                code="body_too_large",
            )
        if not stream.eof:
            raise _broken()
        parts.append(part)
        body = stream.unused_data
    return b"".join(parts)


def _broken() -> InvalidRequest:
    return InvalidRequest(
        "The body does not match its content-encoding, or is incomplete. Send it again, or uncompressed.",
        param="content-encoding",
        code="invalid_encoding",
    )
