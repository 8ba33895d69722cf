"""HTTP/1.1 with limits for clients: on connections, the head's length, the time a request takes to arrive, and answers
not read. Knows no endpoint."""

import asyncio
import resource
from typing import Final

from httptools import HttpParserError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PATIENCE_SECONDS: Final = 60.0
"""Seconds for a head, the first from the connection on; between two parts of a body; for a client that reads nothing of
its answer."""
LEAST_BYTES_PER_SECOND: Final = 500
"""Minimum average rate of a body beyond those seconds: a slow upload survives while it progresses."""
LONGEST_HEAD_BYTES: Final = 1 << 16
"""Beyond the data that its first bytes came with. The parser itself buffers without limit."""
MOST_CONNECTIONS: Final = 4000
"""However many files may be open."""


def _refusal(status: str, sentence: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    return f"{head}content-length: {len(sentence)}\r\n\r\n{sentence}".encode("ascii")


NO_REQUEST: Final = _refusal(
    "400 Bad Request", "No valid HTTP/1.1 request; see to its first line, its one Host header and its body's length.\n"
)
HEAD_TOO_LONG: Final = _refusal("431 Request Header Fields Too Large", "The head is too long; send shorter headers.\n")
HEAD_TOO_SLOW: Final = _refusal("408 Request Timeout", "The head did not come in time; send the request again.\n")
TOO_MANY: Final = _refusal("503 Service Unavailable", "Too many connections are open; try again in a minute.\n")


def most_connections() -> int:
    """Half of the files that this process may open."""
    return min(MOST_CONNECTIONS, _open_files() // 2)


def most_accepted() -> int:
    """Connections that wait to be accepted, and are accepted before the first is counted.

    Without a descriptor left, asyncio accepts nobody and logs an error for each of them, every second.
    """
    return min(MOST_CONNECTIONS // 2, _open_files() // 8)


def _open_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else soft


class BoundedProtocol(HttpToolsProtocol):
    """Only new connections, requests that arrive in several pieces, and answers that are not being read, have a
    timer."""

    most: int | None = None
    """Connections at once; by default what the limit on open files allows."""
    _is_in_head = False
    _is_partial = False
    """A request has begun to arrive, and not ended."""
    _head_bytes = 0
    _watch: asyncio.TimerHandle | None = None
    _began_at = _came_at = 0.0
    _body_bytes = 0
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._start_watching()
        if len(self.connections) > (self.most or most_connections()):
            transport.write(TOO_MANY)
            transport.close()

    def data_received(self, data: bytes) -> None:
        self._is_partial, before = True, self._body_bytes
        super().data_received(data)
        if self._is_partial:
            self._head_bytes += len(data) if self._body_bytes == before else 0
            if self._head_bytes > LONGEST_HEAD_BYTES:
                self._refuse(HEAD_TOO_LONG)
            elif self._watch is None:
                self._start_watching()
            elif self._body_bytes > before:
                self._came_at = self.loop.time()

    def on_message_begin(self) -> None:
        self._is_partial = self._is_in_head = True
        self._head_bytes = self._body_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        assert self.parser, "it is who calls"
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) != 1 and (hosts or self.parser.get_http_version() != "1.0"):
            raise HttpParserError  # https://www.rfc-editor.org/rfc/rfc9112#section-3.2
        self._is_in_head, self._head_bytes = False, 0
        self._stop_watching()
        super().on_headers_complete()
        self.headers = []  # trailers of a chunked body must not join them

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_partial, self._head_bytes = False, 0
        self._stop_watching()

    def send_400_response(self, msg: str) -> None:
        """Never into an answer in progress, nor in place of an earlier request's answer."""
        if not self._is_behind() and (self._is_in_head or not self.cycle or not self.cycle.response_started):
            self.transport.write(NO_REQUEST)
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._patience = self.loop.call_later(PATIENCE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._forget()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        self._forget()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def _look(self) -> None:
        due = min(self._began_at + self._body_bytes / LEAST_BYTES_PER_SECOND, self._came_at) + PATIENCE_SECONDS
        if self._is_behind():
            due = self.loop.time() + PATIENCE_SECONDS
        if due > self.loop.time():
            self._watch = self.loop.call_at(due, self._look)
        else:
            self._refuse(HEAD_TOO_SLOW)

    def _is_behind(self) -> bool:
        """Whether an earlier request's answer is unfinished: meanwhile nothing more is read, and that answer goes
        first."""
        return bool(self.pipeline) or (self._is_in_head and bool(self.cycle) and not self.cycle.response_complete)

    def _refuse(self, answer: bytes) -> None:
        """A client with an incomplete body gets no response: the waiting endpoint sees a disconnect."""
        if self._is_in_head and not self._is_behind():
            self.transport.write(answer)
        self.transport.close()

    def _start_watching(self) -> None:
        self._began_at = self._came_at = self.loop.time()
        self._watch = self.loop.call_later(PATIENCE_SECONDS, self._look)

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _forget(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
