"""A connection on which a WebSocket was opened: uvicorn's, with patience for slow clients, bounded memory, and a stop
that lets the application finish. Knows no application.

Messages are not compressed: events are short, and what a client compressed could be thousands of times as large.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from gateway.process.crowd import Crowd

STOPPING: Final = "breakeven.socket.stopping"
"""Type of a message to the application: it should finish what it does and close, as the server stops or needs room."""
PING_SECONDS: Final = 20.0
"""Keeps proxies from closing a silent connection. A client need not answer: its own code may keep it busy for minutes,
and TCP notices one that is gone."""
FAREWELL_SECONDS: Final = 0.5
"""How long a stopping server waits for the client's part of closing."""
FRAMES_BYTES: Final = 1 << 16
"""What frames around a message, and pings between them, may add to it."""

PIECE_BYTES: Final = 1 << 12
"""Of one read, what is looked at before its frames are counted."""
MOST_AT_ONCE: Final = 1000
"""Frames of one read, and messages that wait for the application. One read may hold tens of thousands of either, pings
too, and no other connection is served while they are looked at."""


class Sockets:
    """Where one server takes WebSockets, and how large their messages may be: each, and all together while they
    arrive."""

    def __init__(self, takes: Callable[[str], bool], *, largest_bytes: int, most_arriving_bytes: int) -> None:
        self.takes = takes
        self.largest_bytes = largest_bytes
        self.most_arriving_bytes = most_arriving_bytes
        self.arriving_bytes = 0


class SocketProtocol(WebSocketsSansIOProtocol):
    """Nothing is read before the application accepts, nor while a message waits for it, nor the next one while the
    client accepts no data; a client that accepts none for `patience_seconds` is dropped. Where there are too many
    connections, those that got no message for longest are closed as at a stop."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        sockets: Sockets,
        *,
        patience_seconds: float,
        crowd: Crowd,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.conn = ServerProtocol(max_size=sockets.largest_bytes, logger=self.logger)
        self.ping_interval, self.ping_timeout = PING_SECONDS, None
        self._sockets = sockets
        self._patience_seconds = patience_seconds
        self._crowd = crowd
        self._patience: asyncio.TimerHandle | None = None
        self._arriving_bytes = 0
        self._frames_at_once = 0
        self._is_accepted = False
        self._asked: dict[str, Any] = {}
        self._early = b""

    def open(self, transport: asyncio.Transport, asked: dict[str, Any], key: bytes, early: bytes) -> None:
        """Take over the connection; `asked` is the scope of the HTTP request, found to be a valid offer, and `early`
        what came with it, which is not looked at before it is accepted."""
        self._asked, self._early = asked, early
        self.connection_made(transport)
        self._crowd.came(self)
        handshake = b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: "
        super().data_received(b"GET / HTTP/1.1\r\nhost: x\r\n%b%b\r\n\r\n" % (handshake, key))

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        for name in ("path", "raw_path", "query_string", "headers"):
            self.scope[name] = self._asked[name]
        self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self._arriving_bytes += len(data)
        self._sockets.arriving_bytes += len(data)
        self._frames_at_once = 0
        for start in range(0, len(data), PIECE_BYTES):
            super().data_received(data[start : start + PIECE_BYTES])
            if self._frames_at_once > MOST_AT_ONCE:
                self._fail(CloseCode.TRY_AGAIN_LATER, "too many frames at once")
            if self.transport.is_closing():
                return
        if self._arriving_bytes > self._sockets.largest_bytes + FRAMES_BYTES:
            self._fail(CloseCode.MESSAGE_TOO_BIG, "too many small frames")
        elif self._arriving_bytes and self._sockets.arriving_bytes > self._sockets.most_arriving_bytes:
            self._fail(CloseCode.TRY_AGAIN_LATER, "too many messages are arriving; try again in a moment")

    def handle_events(self) -> None:
        self._frames_at_once += len(self.conn.events)
        super().handle_events()

    def send_receive_event_to_app(self) -> None:
        self._let_go()
        self._crowd.busy(self)
        self._crowd.waits(self)  # behind all others
        if self.queue.qsize() >= MOST_AT_ONCE and not self.close_sent:
            self._fail(CloseCode.TRY_AGAIN_LATER, "too many messages at once")
        self.frames = [b"".join(self.frames)]
        try:
            if self.curr_msg_data_type == "text":
                self.frames[0].decode()
        except UnicodeDecodeError:  # uvicorn would log a traceback of each
            self.frames = []
            self._fail(CloseCode.INVALID_DATA, "text must be UTF-8")
            return
        super().send_receive_event_to_app()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.accept":
            self._is_accepted = True
            early, self._early = self._early, b""
            if early and not self.transport.is_closing():
                self.data_received(early)
            self._read_on()

    async def receive(self) -> ASGIReceiveEvent:
        message = await self.queue.get()
        if self.queue.empty():
            self.read_paused = False
            self._read_on()
        return message

    def pause_writing(self) -> None:
        super().pause_writing()
        self._patience = self.loop.call_later(self._patience_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._forget()
        super().resume_writing()
        self._read_on()

    def leave(self) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        if self.handshake_complete and not self.close_sent:
            self.close_timeout = FAREWELL_SECONDS
            self.queue.put_nowait({"type": STOPPING})  # pyright: ignore[reportArgumentType]
        else:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.gone(self)
        self._forget()
        self._let_go()
        super().connection_lost(exc)
        self.conn.parser.close()  # amid a message it holds its megabytes in a cycle, and those are searched for seldom

    def _read_on(self) -> None:
        """Not while the client accepts no data: each ping that is read is answered."""
        if self._is_accepted and self.writable.is_set() and not (self.read_paused or self.transport.is_closing()):
            self.transport.resume_reading()

    def _fail(self, code: CloseCode, why: str) -> None:
        if not (self.close_sent or self.transport.is_closing()):
            self.conn.fail(code, why)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
        self.transport.close()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": why})

    def _let_go(self) -> None:
        self._sockets.arriving_bytes -= self._arriving_bytes
        self._arriving_bytes = 0

    def _forget(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
