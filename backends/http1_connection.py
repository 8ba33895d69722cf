"""One kept HTTP/1.1 connection and the answer under way on it. Parsing is llhttp's; ours are order, limits and ends."""

import asyncio
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, Protocol, cast

import httptools

from backends.errors import UpstreamUnavailable

MAX_HEADER_BYTES: Final = 64 * 1024
MAX_WAITING_BYTES: Final = 1024 * 1024
"""Read ahead of the reader before the upstream is made to wait."""
_WRITTEN_AT_ONCE_BYTES: Final = 512 * 1024
"""A larger body goes out in pieces, so that other streams get their turn between them."""
_DECODED_AT_ONCE_BYTES: Final = 1024 * 1024
"""A compressed body is decoded so much at a time: the reader, who counts, stops a bomb."""
_FINISH_SECONDS: Final = 1.0


class Decoder(Protocol):
    """A decompressor of the standard library."""

    @property
    def unconsumed_tail(self) -> bytes: ...

    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Headers(Mapping[str, str]):
    """Looked up whatever the name's case; a repeated header's values are joined with a comma."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def add(self, name: str, value: str) -> None:
        lower = name.lower()
        before = self._values.get(lower)
        self._values[lower] = value if before is None else f"{before}, {value}"

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Http1Response:
    """An answer whose head has come."""

    __slots__ = (
        "_backend",
        "_connection",
        "_decoder",
        "_error",
        "_finishing",
        "_pieces",
        "_waiter",
        "_waiting_bytes",
        "headers",
        "is_complete",
        "status",
    )

    def __init__(self, connection: "Http1Connection", backend: str) -> None:
        self.status = 0
        self.headers = Headers()
        self.is_complete = False
        self._backend = backend
        self._connection = connection
        self._decoder: Decoder | None = None
        self._pieces: list[bytes] = []
        self._waiting_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: UpstreamUnavailable | None = None
        self._finishing: asyncio.TimerHandle | None = None

    async def read(self) -> bytes:
        """As `HttpResponse.read`."""
        while True:
            if self._pieces or (self._decoder is not None and self._decoder.unconsumed_tail):
                if piece := self._take():
                    return piece
                continue
            if self._error is not None:
                raise self._error
            if self.is_complete:
                self._check_decoder()
                return b""
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
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
        if not self.is_complete and self._error is None:
            self._finishing = asyncio.get_running_loop().call_later(_FINISH_SECONDS, self.close)

    def begin(self, status: int) -> None:
        """The head is whole."""
        self.status = status
        encoding = self.headers.get("content-encoding", "identity").lower()
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
        self._wake()

    def end(self) -> None:
        """The body is whole."""
        self.is_complete = True
        self._stop_finishing()
        self._wake()

    def fail(self, what: str) -> None:
        """The body will not become whole."""
        if self._error is None and not self.is_complete:
            self._error = UpstreamUnavailable(f"{self._backend} {what}", backend=self._backend)
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
        try:
            return decoder.decompress(decoder.unconsumed_tail + piece, _DECODED_AT_ONCE_BYTES)
        except zlib.error as error:
            self.fail("sent a body that does not decompress")
            raise UpstreamUnavailable(f"{self._backend} sent a broken body", backend=self._backend) from error

    def _check_decoder(self) -> None:
        if self._decoder is not None and not self._decoder.eof:
            raise UpstreamUnavailable(f"{self._backend} cut its compressed answer", backend=self._backend)

    def _stop_finishing(self) -> None:
        if self._finishing is not None:
            self._finishing.cancel()
            self._finishing = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Http1Connection(asyncio.Protocol):
    """Carries one exchange after another; puts itself into `idle` between them and into `opened` while it lives."""

    def __init__(self, backend: str, idle: "deque[Http1Connection]", opened: "set[Http1Connection]") -> None:
        self.idle_since = 0.0
        self.is_closed = False
        self._backend = backend
        self._idle, self._opened = idle, opened
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._loop: asyncio.AbstractEventLoop
        self._response: Http1Response | None = None
        self._head: asyncio.Future[Http1Response] | None = None
        self._header_bytes = 0
        self._is_sending = False
        self._is_paused = False
        self._writable: asyncio.Future[None] | None = None

    async def exchange(self, head: bytes, body: bytes | None) -> Http1Response:
        """Send a request and wait for its answer's head. Raises UpstreamUnavailable."""
        self._response = Http1Response(self, self._backend)
        answer = self._head = self._loop.create_future()
        try:
            if body is None or len(body) <= _WRITTEN_AT_ONCE_BYTES:
                self._transport.write(head + body if body else head)
            else:
                await self._send_large(head, body, answer)
            return await answer
        except BaseException:
            self.close()
            raise

    async def _send_large(self, head: bytes, body: bytes, answer: asyncio.Future[Http1Response]) -> None:
        self._is_sending = True
        self._transport.write(head)
        whole = memoryview(body)
        for start in range(0, len(body), _WRITTEN_AT_ONCE_BYTES):
            if answer.done():  # answered before it was all sent: a refusal
                return
            self._transport.write(whole[start : start + _WRITTEN_AT_ONCE_BYTES])
            if self._writable is not None:
                await asyncio.wait((self._writable, answer), return_when=asyncio.FIRST_COMPLETED)
        self._is_sending = False

    def close(self) -> None:
        """Cut it; whatever is under way fails."""
        if not self.is_closed:
            self.is_closed = True
            self._transport.abort()

    def pause(self) -> None:
        """Read no more until `resume`."""
        if not self._is_paused and not self.is_closed:
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._is_paused and not self.is_closed:
            self._is_paused = False
            self._transport.resume_reading()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        self._loop = asyncio.get_running_loop()
        self._opened.add(self)

    def data_received(self, data: bytes) -> None:
        if self._response is None:
            self.close()  # nobody asked
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail("sent headers without end" if isinstance(error.__context__, _TooLarge) else "sent no valid HTTP")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._opened.discard(self)
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        response = self._response
        ends_with_connection = response is not None and response.status and not _has_length(response.headers)
        if exc is None and ends_with_connection and response is not None:
            response.end()
        else:
            self._fail(f"dropped the connection ({type(exc).__name__ if exc else 'closed'})")

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEADER_BYTES:
            raise _TooLarge
        if self._response is not None:
            self._response.headers.add(name.decode("latin-1"), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        status, response = self._parser.get_status_code(), self._response
        self._header_bytes = 0
        if response is None:
            return
        if status < 200:  # an interim answer, as 100 or 103: the real one follows
            response.headers = Headers()
            return
        response.begin(status)
        if self._head is not None and not self._head.done():
            self._head.set_result(response)

    def on_body(self, body: bytes) -> None:
        if self._response is not None:
            self._response.add(body)

    def on_message_complete(self) -> None:
        response = self._response
        if response is None or not response.status:
            return
        self._response = self._head = None
        response.end()
        if self._is_sending or not self._parser.should_keep_alive():
            self.close()
            return
        self.resume()
        self.idle_since = self._loop.time()
        self._idle.append(self)

    def _fail(self, what: str) -> None:
        if self._head is not None and not self._head.done():
            self._head.set_exception(UpstreamUnavailable(f"{self._backend} {what}", backend=self._backend))
        if self._response is not None:
            self._response.fail(what)


class _TooLarge(Exception):
    """More headers than anybody needs."""


def _has_length(headers: Headers) -> bool:
    return "content-length" in headers or "transfer-encoding" in headers
