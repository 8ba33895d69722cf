"""HTTP/1.1 with limits on request time, on unread answers, and on the number of connections. Knows no page."""

import asyncio
import resource
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

PATIENCE_SECONDS: Final = 60.0
"""Timeout for a request, from its connection or first byte, and for a browser that reads nothing of its answer."""
LEAST_BYTES_PER_SECOND: Final = 500
"""Minimum average rate of a body beyond those seconds: a slow upload may continue while it makes progress."""
MOST_CONNECTIONS: Final = 4000
"""However many files may be open. A browser tab takes two to four."""


def last_words(status: bytes, sentence: bytes) -> bytes:
    """An answer after which the connection is closed."""
    return (
        b"HTTP/1.1 %b\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
        % (status, len(sentence), sentence)
    )


TOO_SLOW: Final = last_words(b"408 Request Timeout", b"The request did not come in time; send it again.\n")
TOO_MANY: Final = last_words(
    b"503 Service Unavailable", b"More connections are open than the web UI can serve; try again in a minute.\n"
)


def most_connections() -> int:
    """Half of the files that this process may open: the rest are for requests to the gateway."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, soft // 2)


def bounded(most: int) -> type["BoundedProtocol"]:
    """The protocol for a server of at most `most` connections at once."""
    return type("Bounded", (BoundedProtocol,), {"most": most})


class BoundedProtocol(H11Protocol):
    """Uses h11, which limits the length of a request head; uvicorn's other parser buffers any length, from anyone."""

    most = MOST_CONNECTIONS
    _watch: asyncio.TimerHandle | None = None
    _began_at = 0.0
    _body_bytes = 0
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._start_watching()
        if len(self.connections) > self.most:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        was_in_body = self._is_in_body()
        super().data_received(data)
        if was_in_body and not self.cycle.response_complete:
            self._body_bytes += len(data)
        self._watch_what_is_awaited()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_what_is_awaited()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Refuses an upgrade with a body (RFC 6455, 4.1): if that never came, the connection would stay for ever."""
        if any(name in (b"content-length", b"transfer-encoding") for name, _ in event.headers):
            self.send_400_response("A WebSocket handshake has no body.")
            return
        self._stop_watching()
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        """Closes instead if a response is being sent already; replaces one that has not begun."""
        if self.cycle and not self.cycle.response_complete:
            self.cycle.disconnected = True  # else anybody could fill the log with what the application still sends
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
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

    def _make_room(self) -> None:
        """Closes the connection that has been awaited longest; a new one is told why if all others are served."""
        waiting = [one for one in self.connections if isinstance(one, BoundedProtocol) and one.is_awaited()]
        longest = min(waiting, key=lambda one: (one._began_at, one is self))
        if longest is self:
            self.transport.write(TOO_MANY)
        longest.transport.close()

    def is_awaited(self) -> bool:
        """Whether a request, or the rest of one, is still to come, and no response is being sent."""
        is_served = self.conn.their_state is h11.DONE or self.conn.our_state is h11.SEND_BODY
        return not is_served and not self.transport.is_closing()

    def _is_in_body(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY

    def _is_in_head(self) -> bool:
        return self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])

    def _watch_what_is_awaited(self) -> None:
        if not (self._is_in_head() or self._is_in_body()) or self.transport.is_closing():
            self._stop_watching()
            return
        self._unset_keepalive_if_required()
        if self._watch is None:
            self._start_watching()

    def _start_watching(self) -> None:
        self._began_at, self._body_bytes = self.loop.time(), 0
        self._watch = self.loop.call_later(PATIENCE_SECONDS, self._look)

    def _look(self) -> None:
        due = self._began_at + PATIENCE_SECONDS + self._body_bytes / LEAST_BYTES_PER_SECOND
        if due > self.loop.time():
            self._watch = self.loop.call_at(due, self._look)
            return
        if self._is_in_head():
            self.transport.write(TOO_SLOW)
        self.transport.close()

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _forget(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
