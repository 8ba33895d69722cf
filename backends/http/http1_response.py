"""An HTTP/1.1 response whose head has been received: reads and decodes the body as it arrives."""

import asyncio
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final, Protocol

from backends.errors import UpstreamUnavailable

MAX_WAITING_BYTES: Final = 1024 * 1024
"""Bytes buffered for the reader before reading from the upstream pauses."""
_DECODED_AT_ONCE_BYTES: Final = 1024 * 1024
"""A compressed body is decoded in pieces of at most this size, so that the reader's limit stops decompression bombs."""
_FINISH_SECONDS: Final = 1.0


class Connection(Protocol):
    """What a response may do to its connection."""

    def close(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Decoder(Protocol):
    """A decompressor of the standard library."""

    @property
    def unconsumed_tail(self) -> bytes: ...

    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Headers(Mapping[str, str]):
    """Lookups ignore case; values of repeated headers are joined by commas.

    Stored as bytes and decoded when read: of about twenty that a provider sends, one or two are.
    """

    __slots__ = ("_values",)

    def __init__(self, came: Iterable[tuple[bytes, bytes]] = ()) -> None:
        values: dict[bytes, bytes] = {}
        for name, value in came:
            lower = name.lower()
            values[lower] = value if lower not in values else b"%b, %b" % (values[lower], value)
        self._values = values

    def __getitem__(self, name: str) -> str:
        return self._values[_written(name)].decode("latin-1")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and _written(name) in self._values  # Mapping's own catches a KeyError

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._values)

    def __len__(self) -> int:
        return len(self._values)


@cache
def _written(name: str) -> bytes:
    """Cached, since only our own few names are looked up."""
    return name.lower().encode("latin-1")


NO_HEADERS: Final = Headers()


class Http1Response:
    """See HttpResponse. Created before the head is received; the connection feeds it with `begin`, `add`, `end` and
    `fail`."""

    __slots__ = (
        "_backend",
        "_connection",
        "_decoder",
        "_failure",
        "_finishing",
        "_pieces",
        "_waiter",
        "_waiting_bytes",
        "headers",
        "is_complete",
        "status",
    )

    def __init__(self, connection: Connection, backend: str) -> None:
        self.status = 0
        self.headers = NO_HEADERS
        self.is_complete = False
        self._backend = backend
        self._connection = connection
        self._decoder: Decoder | None = None
        self._pieces: list[bytes] = []
        self._waiting_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._failure: str | None = None  # text, not an exception: a raised one refers to its reader's frames and to us
        self._finishing: asyncio.TimerHandle | None = None

    @property
    def is_ready(self) -> bool:
        """See HttpResponse. False if compressed: the bytes received may not decode to anything yet."""
        return self._decoder is None and (bool(self._pieces) or self.is_complete)

    async def read(self) -> bytes:
        """See HttpResponse."""
        while True:
            if self._pieces or (self._decoder is not None and self._decoder.unconsumed_tail):
                if piece := self._take():
                    return piece
                continue
            if self._failure is not None:
                raise UpstreamUnavailable(self._failure)
            if self.is_complete:
                self._check_decoder()
                return b""
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            try:
                await waiter
            finally:
                self._waiter = None

    def close(self) -> None:
        """See HttpResponse."""
        self._stop_finishing()
        if not self.is_complete:
            self._connection.close()
            self.fail("was closed by us")

    def finish(self) -> None:
        """See HttpResponse."""
        if not self.is_complete and self._failure is None:
            self._finishing = asyncio.get_running_loop().call_later(_FINISH_SECONDS, self.close)

    def begin(self, status: int, headers: Headers) -> None:
        """The head has been received."""
        self.status, self.headers = status, headers
        encoding = self.headers["content-encoding"].lower() if "content-encoding" in self.headers else "identity"
        if encoding in ("gzip", "x-gzip", "deflate"):
            self._decoder = zlib.decompressobj(wbits=47)  # detects a zlib or gzip header
        elif encoding != "identity":
            self.fail(f"encoded its answer as {encoding[:20]!r}, which was not requested")

    def add(self, piece: bytes) -> None:
        """A piece of the body has been received."""
        if self._finishing is not None:
            return  # nobody reads it any longer
        self._pieces.append(piece)
        self._waiting_bytes += len(piece)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._connection.pause()
        if self._waiter is not None:
            self._wake()

    def end(self) -> None:
        """The body is complete."""
        self.is_complete = True
        self._stop_finishing()
        self._wake()

    def fail(self, what: str) -> None:
        """The body will not be completed."""
        if self._failure is None and not self.is_complete:
            self._failure = f"{self._backend} {what}"
            self._wake()

    def _take(self) -> bytes:
        pieces = self._pieces
        found = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._connection.resume()
        self._waiting_bytes = 0
        return found if self._decoder is None else self._decoded(self._decoder, found)

    def _decoded(self, decoder: Decoder, piece: bytes) -> bytes:
        if decoder.eof:
            return b""  # the decoder would buffer whatever follows, and copy the buffer for every piece
        try:
            return decoder.decompress(decoder.unconsumed_tail + piece, _DECODED_AT_ONCE_BYTES)
        except zlib.error as error:
            self.fail("sent a body that does not decompress")
            raise UpstreamUnavailable(f"{self._backend} sent a broken body") from error

    def _check_decoder(self) -> None:
        if self._decoder is not None and not self._decoder.eof:
            raise UpstreamUnavailable(f"{self._backend} cut off its compressed answer")

    def _stop_finishing(self) -> None:
        if self._finishing is not None:
            self._finishing.cancel()
            self._finishing = None

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None  # so that further pieces do not wake it again before it runs
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
