"""One persistent HTTP/1.1 connection. llhttp parses; this file handles order, limits and the end of an exchange."""

import asyncio
from collections.abc import Callable
from typing import Final, cast

import httptools

from backends.errors import UpstreamTimeout, UpstreamUnavailable
from backends.http.http1_response import Headers, Http1Response

MAX_HEADER_BYTES: Final = 64 * 1024
_WRITTEN_AT_ONCE_BYTES: Final = 512 * 1024
"""Larger bodies are written in pieces, so that other streams are served in between."""
_STALE_SECONDS: Final = 1.0
"""If a reused connection is lost this soon after sending, the server had closed it before it saw the request."""
_MOST_INTERIM: Final = 1_000
"""Limit on interim (1xx) responses. Some servers send one every few seconds as a sign of life."""
_BORNE: Final = {
    "lenient_spaces_after_chunk_size": True,
    "lenient_optional_cr_before_lf": True,
    "lenient_chunked_length": True,
    "lenient_headers": True,
}
"""Deviations that RFC 9112 lets a client accept, as other clients do (7.1.1: chunk sizes; 2.2: line ends; 6.3: a length
in addition to chunks; 5.2: headers that continue on the next line). Safe, since nothing behind us parses the same bytes
differently."""
_CONTROLS: Final = bytes({*range(32), 127} - {ord("\t")})
"""Rejected in headers here, since the lenient parser lets them pass."""


class Http1Connection(asyncio.Protocol):
    """Carries one exchange at a time. Calls `freed` when it is ready for the next, and is in `opened` while it is
    open."""

    def __init__(
        self, backend: str, freed: "Callable[[Http1Connection], None]", opened: "set[Http1Connection]"
    ) -> None:
        self.idle_since = 0.0
        self.is_closed = False
        self.is_used = False
        self._backend = backend
        self._freed, self._opened = freed, opened
        self._bodies: list[bytes] = []
        self.on_body = self._bodies.append  # called by the parser, for every chunk of the coding
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**_BORNE)
        self._transport: asyncio.Transport
        self._loop: asyncio.AbstractEventLoop
        self._response: Http1Response | None = None
        self._head: asyncio.Future[Http1Response] | None = None
        self._answer_by = 0.0
        self._surely_read_from = 0.0
        self._timer: asyncio.TimerHandle | None = None
        """Reused by later exchanges: setting and cancelling one for each costs more than checking the time when it
        fires."""
        self._rings_at = 0.0
        self._headers: list[tuple[bytes, bytes]] = []
        self._header_bytes = 0
        self._unended_bytes = 0
        """Bytes received since the parser's last callback: an endless header, reason or chunk extension."""
        self._interim = 0
        self._is_sending = False
        self._is_paused = False
        self._writable: asyncio.Future[None] | None = None

    async def exchange(self, head: bytes, body: bytes | None, answer_by: float) -> Http1Response:
        """Send a request and wait for the response's head until `answer_by`, in the loop's time.

        Raises UpstreamTimeout or UpstreamUnavailable.
        """
        self._surely_read_from = self._loop.time() + _STALE_SECONDS if self.is_used else 0.0
        self.is_used = True
        if self.is_closed:
            raise UpstreamUnavailable(f"{self._backend} dropped the connection (closed)")
        self._response = Http1Response(self, self._backend)
        self._interim = 0
        answer = self._head = self._loop.create_future()
        self._answer_by = answer_by
        if self._timer is None or self._rings_at > answer_by:
            self._set_timer()
        try:
            if body is None or len(body) <= _WRITTEN_AT_ONCE_BYTES:
                self._transport.write(head + body if body else head)
            else:
                await self._send_large(head, body, answer)
            return await answer
        except BaseException:
            self.close()
            raise
        finally:
            del answer  # it holds its error, whose traceback holds this frame, and so the whole body

    async def _send_large(self, head: bytes, body: bytes, answer: asyncio.Future[Http1Response]) -> None:
        self._is_sending = True
        self._transport.write(head)
        whole = memoryview(body)
        for start in range(0, len(body), _WRITTEN_AT_ONCE_BYTES):
            if answer.done():  # answered before all was sent: a rejection
                return
            self._transport.write(whole[start : start + _WRITTEN_AT_ONCE_BYTES])
            if self._writable is not None:
                await asyncio.wait((self._writable, answer), return_when=asyncio.FIRST_COMPLETED)
        self._is_sending = False

    def close(self) -> None:
        """Drop the connection; a pending exchange fails."""
        if not self.is_closed:
            self.is_closed = True
            self._transport.abort()

    def pause(self) -> None:
        """Stop reading until `resume`."""
        if not self._is_paused and not self.is_closed:
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._is_paused and not self.is_closed:
            self._is_paused = False
            self._transport.resume_reading()

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        self._loop = asyncio.get_running_loop()
        self.idle_since = self._loop.time()
        self._opened.add(self)

    def data_received(self, data: bytes) -> None:
        if self._response is None:
            self.close()  # no request is pending
            return
        self._unended_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._pass_on()
            self._fail("sent headers without end" if isinstance(error.__context__, _TooLarge) else "sent no valid HTTP")
            self.close()
        self._pass_on()
        if self._unended_bytes > MAX_HEADER_BYTES and not self.is_closed:
            # The parser buffers all of it, and copies the buffer for every piece.
            self._fail("sent a header without end")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._opened.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        del self._parser  # a reference cycle with this connection: only the garbage collector would free the two
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        response = self._response
        ends_with_connection = response is not None and response.status and not _has_length(response.headers)
        if exc is None and ends_with_connection and response is not None:
            response.end()
        else:
            was_read = not self._is_sending and self._loop.time() >= self._surely_read_from
            self._fail(f"dropped the connection ({type(exc).__name__ if exc else 'closed'})", may_be_billed=was_read)
        self._response = self._head = None  # it refers to this connection too, and may hold 1 MiB that nobody reads

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # Called by the parser.

    def on_message_begin(self) -> None:
        """An unsolicited response that follows a solicited one must never be taken for the next call's."""
        self._headers, self._header_bytes = [], 0  # trailers of the previous chunked body do not belong to this one
        if self._response is None:
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._unended_bytes = 0
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEADER_BYTES:
            raise _TooLarge
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._unended_bytes = 0
        status, response = self._parser.get_status_code(), self._response
        if response is None:
            return
        if status < 200:  # an interim response such as 100 or 103: the final one follows
            self._interim += 1
            if self._interim > _MOST_INTERIM:
                raise _TooLarge
            return
        values = b"".join([value for _, value in self._headers])
        if len(values.translate(None, _CONTROLS)) != len(values):
            raise httptools.HttpParserError
        response.begin(status, Headers(self._headers))
        if self._head is not None and not self._head.done():
            self._head.set_result(response)

    def on_message_complete(self) -> None:
        self._pass_on()
        self._unended_bytes = 0
        response = self._response
        if response is None or not response.status:
            return
        self._response = self._head = None
        response.end()
        if self._is_sending or not self._parser.should_keep_alive() or _has_two_ends(response.headers):
            self.close()
            return
        self.resume()
        self.idle_since = self._loop.time()
        self._freed(self)

    def _pass_on(self) -> None:
        """Hands over what came of a body, as one piece."""
        if bodies := self._bodies:
            self._unended_bytes = 0
            if self._response is not None:
                self._response.add(bodies[0] if len(bodies) == 1 else b"".join(bodies))
            bodies.clear()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = self._answer_by
        self._timer = self._loop.call_at(self._rings_at, self._look_at_clock)

    def _look_at_clock(self) -> None:
        self._timer = None
        if self._head is None or self._head.done():
            return
        if self._loop.time() < self._answer_by:  # the timer was set for an earlier exchange
            self._set_timer()
            return
        message = f"{self._backend} sent no answer in time"
        self._head.set_exception(UpstreamTimeout(message))

    def _fail(self, what: str, *, may_be_billed: bool = True) -> None:
        if self._head is not None and not self._head.done():
            message = f"{self._backend} {what}"
            self._head.set_exception(UpstreamUnavailable(message, may_be_billed=may_be_billed))
        if self._response is not None:
            self._response.fail(what)


class _TooLarge(Exception):
    """Too many header bytes or interim responses."""


def _has_length(headers: Headers) -> bool:
    return "content-length" in headers or "transfer-encoding" in headers


def _has_two_ends(headers: Headers) -> bool:
    """Whether a body has both chunks and a length. What the length leaves over must not be taken for the next
    response."""
    return "transfer-encoding" in headers and "content-length" in headers
