"""An HTTP/1.1 answer whose head has come: its body as it arrives, decoded, and what a broken or unread one becomes."""

import asyncio
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final, Protocol

from backends.errors import UpstreamUnavailable

MAX_WAITING_BYTES: Final = 1024 * 1024
"""Read ahead of the reader before the upstream is made to wait."""
_DECODED_AT_ONCE_BYTES: Final = 1024 * 1024
"""A compressed body is decoded so much at a time: the reader, who counts, stops a bomb."""
_FINISH_SECONDS: Final = 1.0


class Connection(Protocol):
    """What an answer may do to the connection it comes over."""

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
    """Looked up whatever the name's case; a repeated header's values are joined with a comma.

    Kept as they came: of the twenty that a provider sends, one or two are read.
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
        return isinstance(name, str) and _written(name) in self._values  # else by a KeyError, for every answer

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._values)

    def __len__(self) -> int:
        return len(self._values)


@cache
def _written(name: str) -> bytes:
    """Our own few names."""
    return name.lower().encode("latin-1")


NO_HEADERS: Final = Headers()


class Http1Response:
    """An answer whose head has come."""

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
        self._failure: str | None = None  # an error that was raised would know who reads, and us
        self._finishing: asyncio.TimerHandle | None = None

    @property
    def is_ready(self) -> bool:
        """As `HttpResponse.is_ready`: what is compressed may decode to nothing yet."""
        return self._decoder is None and (bool(self._pieces) or self.is_complete)

    async def read(self) -> bytes:
        """As `HttpResponse.read`."""
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
        """As `HttpResponse.close`."""
        self._stop_finishing()
        if not self.is_complete:
            self._connection.close()
            self.fail("was closed by us")

    def finish(self) -> None:
        """As `HttpResponse.finish`."""
        if not self.is_complete and self._failure is None:
            self._finishing = asyncio.get_running_loop().call_later(_FINISH_SECONDS, self.close)

    def begin(self, status: int, headers: Headers) -> None:
        """The head is whole."""
        self.status, self.headers = status, headers
        encoding = self.headers["content-encoding"].lower() if "content-encoding" in self.headers else "identity"
        if encoding in ("gzip", "deflate"):
            self._decoder = zlib.decompressobj(wbits=47)  # zlib's or gzip's head, whichever it finds
        elif encoding != "identity":
            self.fail(f"encoded its answer as {encoding[:20]!r}, which was not asked for")

    def add(self, piece: bytes) -> None:
        """A piece of the body came."""
        if self._finishing is not None:
            return  # nobody reads it any more
        self._pieces.append(piece)
        self._waiting_bytes += len(piece)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._connection.pause()
        if self._waiter is not None:
            self._wake()

    def end(self) -> None:
        """The body is whole."""
        self.is_complete = True
        self._stop_finishing()
        self._wake()

    def fail(self, what: str) -> None:
        """The body will not become whole."""
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
            return b""  # it would keep whatever follows, and copy that with every piece
        try:
            return decoder.decompress(decoder.unconsumed_tail + piece, _DECODED_AT_ONCE_BYTES)
        except zlib.error as error:
            self.fail("sent a body that does not decompress")
            raise UpstreamUnavailable(f"{self._backend} sent a broken body") from error

    def _check_decoder(self) -> None:
        if self._decoder is not None and not self._decoder.eof:
            raise UpstreamUnavailable(f"{self._backend} cut its compressed answer")

    def _stop_finishing(self) -> None:
        if self._finishing is not None:
            self._finishing.cancel()
            self._finishing = None

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None  # what else comes before it runs has nobody to wake
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
