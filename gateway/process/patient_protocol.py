"""An HTTP/1.1 connection: uvicorn's, with timeouts for slow clients and notice of clients that disconnect."""

import asyncio
from collections.abc import Callable, Sized
from typing import cast
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url
from httptools.parser.url_parser import URL
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.process.answer_head import AnswerCycle
from gateway.process.close_delimited import use_close_delimited
from gateway.process.corked_transport import CorkedTransport
from gateway.process.crowd import Crowd
from gateway.process.no_requests import (
    HEAD_TOO_LONG,
    HEAD_TOO_SLOW,
    LONGEST_URL_BYTES,
    NO_REQUEST,
    URL_TOO_LONG,
    refusal_of,
    with_headers,
)
from gateway.process.offers import head_of_rest, socket_key_of
from gateway.process.open_files import connections_within, open_files
from gateway.process.socket_protocol import SocketProtocol, Sockets

LAST_PATIENCES = 10
"""Patience for the end of a response on a connection that is already closed: a slow reader has megabytes in the
system's buffers, and the system reports room only when a third of them is free."""
LAST_WORD_SECONDS = 0.5
"""A half-close this soon after the last request only says that no more requests follow. Later it means that the client
has gone."""
LONGEST_HEAD_BYTES = 1 << 16
"""Counted after the read in which the head began. The parser itself buffers without limit."""
MOST_PIPELINED = 100
"""Requests that wait for earlier responses. Each takes 2 KB, and one read may hold thousands."""
CONNECTION = "breakeven.connection"
"""ASGI extension of our own server. `listeners` are called when the connection is lost: a task waiting for
`http.disconnect` costs each request more than its parsing. `is_whole` is set when the request is complete."""


def patient_protocol(
    seconds: float,
    *,
    most: int | None = None,
    last_word_seconds: float = LAST_WORD_SECONDS,
    sockets: Sockets | None = None,
) -> type[HttpToolsProtocol]:
    """PatientProtocol for one server that keeps at most `most` connections, by default as many as open files allow.

    Call it where the event loop runs.
    """
    crowd = Crowd(connections_within(open_files()) if most is None else most)
    of_this_server = {
        "patience_seconds": seconds,
        "last_word_seconds": last_word_seconds,
        "crowd": crowd,
        "sockets": sockets,
    }
    return type("PatientProtocol", (PatientProtocol,), of_this_server)


class _InTurn(FlowControl):
    """Keeps reading paused while requests are queued; otherwise every response, and every request for a body already
    received, would let in thousands more."""

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        if self.read_paused and not self._waiting:
            super().resume_reading()


class PatientProtocol(HttpToolsProtocol):
    """HTTP/1.1 that drops a client which accepts no data for `patience_seconds` while some is waiting.

    Until then writes to it wait, and with them reads from upstream, so that no response piles up here. Only a
    connection with a full buffer has a timer; the others pay nothing. The same time limits a head that arrives in
    pieces, and the rest of a request that has been answered already; a body is timed by its reader. Of too many
    connections, those idle longest are closed. A connection that sends too much without completing a head or a part of
    a body is closed at once.
    """

    # Set by `patient_protocol` for all connections of one server.
    patience_seconds: float
    last_word_seconds: float
    crowd: Crowd
    sockets: Sockets | None

    _patience: asyncio.TimerHandle | None = None
    _haste: asyncio.TimerHandle | None = None
    """Timer for data that is not looked at before it is complete; slow progress does not extend it."""
    _whole_at = float("-inf")
    _is_waiting = True
    """For its next request, or the first."""
    _is_in_head = False
    _has_ended = False
    _unread_bytes = 0
    _has_advanced = False
    """Whether the latest data began or completed a head, or contained part of a body."""
    _complaint = NO_REQUEST
    _head_of_rest = b""
    """Set by a request that offers another protocol, until the parser has been made to read its body."""
    _is_rest = False
    _socket_key: bytes | None = None
    """Set by a request that opens a WebSocket, which is the last one in HTTP."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._corked = CorkedTransport(transport, last_seconds=LAST_PATIENCES * self.patience_seconds)
        super().connection_made(self._corked)
        self.flow = _InTurn(self._corked, self.pipeline)
        self._leaving: set[Callable[[], None]] = set()
        self._silent_since = self.loop.time()
        self._keep_alive = self.loop.call_later(self.timeout_keep_alive, self._end_silence)
        self.crowd.came(self)

    def data_received(self, data: bytes) -> None:
        self._has_advanced = False
        self._parse(data)
        self._unread_bytes = 0 if self._has_advanced else self._unread_bytes + len(data)
        if self._unread_bytes > LONGEST_HEAD_BYTES:
            is_url_too_long = self._is_in_head and len(self.url) > LONGEST_URL_BYTES
            self._refuse_head(URL_TOO_LONG if is_url_too_long else HEAD_TOO_LONG)
        elif self._is_waiting and self._haste is None:
            self._haste = self.loop.call_later(self.patience_seconds, self._refuse_head, HEAD_TOO_SLOW)

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Whether to keep the connection: a client that has merely finished sending gets its response. A closed
        connection looks the same, and a call nobody waits for costs money, so this holds only if the request was
        announced as the last.
        """
        is_answered = not self._is_waiting and "is_whole" in self._told
        self._has_ended = is_answered and (not self._leaving or self._is_last_word())
        self._corked.flush()  # the event loop closes the inner transport, and a complete response may be held back here
        return self._has_ended

    def _parse(self, data: bytes) -> None:
        """Replaces uvicorn's, which ignores everything after an offer of another protocol."""
        parser = self.parser
        assert parser, "nothing comes over a lost connection"
        while data:
            try:
                parser.feed_data(data)
                return
            except HttpParserUpgrade as offer:
                if self._socket_key is not None:
                    self._open_socket(self._socket_key, data[offer.args[0] :])
                    return
                self._is_rest = bool(self._head_of_rest)
                data = self._head_of_rest + data[offer.args[0] :]
                self._head_of_rest = b""
            except HttpParserError:
                self.send_400_response("")
                return

    def on_message_begin(self) -> None:
        if self._is_rest:
            return
        self._has_advanced = self._is_in_head = True
        self._rest()
        super().on_message_begin()
        self._told: dict[object, object] = {"listeners": self._leaving}
        self.scope["extensions"] = {CONNECTION: self._told}

    def on_headers_complete(self) -> None:
        if self._is_rest:
            self._is_rest = False
            return
        assert self.parser, "it is who calls"
        version = self.parser.get_http_version()
        if complaint := refusal_of(self.url, self.headers, version):
            self._complaint = complaint
            raise HttpParserError
        target = parse_url(self.url)  # raises for targets without an address: `CONNECT host:80`, `GET http:///`
        self._has_advanced = True
        self._is_waiting = self._is_in_head = False
        self._rest()
        self.crowd.busy(self)
        self._describe(self.parser, version, target)
        if self.parser.should_upgrade():
            self._head_of_rest = head_of_rest(self.headers)
            if self._takes_socket():
                self._socket_key = socket_key_of(self.parser.get_method(), version, self.headers)
                if self._socket_key is not None:
                    return
        self._begin_cycle(self.parser, version)
        self.headers = []  # trailers of a chunked body must not join the validated headers
        if version == "1.0":
            use_close_delimited(self.cycle)

    def _describe(self, parser: HttpRequestParser, version: str, target: URL) -> None:
        raw_path = target.path or b"/"  # `GET http://host` has none
        path = raw_path.decode("ascii")
        self.scope["method"] = parser.get_method().decode("ascii")
        self.scope["http_version"] = version
        self.scope["path"] = self.root_path + (unquote(path) if "%" in path else path)
        self.scope["raw_path"] = self.root_path.encode("ascii") + raw_path
        self.scope["query_string"] = target.query or b""

    def _takes_socket(self) -> bool:
        is_amid = bool(self.cycle) and not self.cycle.response_complete  # the client pipelines requests
        return self.sockets is not None and not is_amid and self.sockets.takes(self.scope["path"])

    def _open_socket(self, key: bytes, early: bytes) -> None:
        """Hand the connection over, with what the client sent too early."""
        assert self.sockets is not None, "it has taken the offer"
        self._forget()
        self._keep_alive.cancel()
        self.connections.discard(self)
        self.crowd.gone(self)
        self.parser = None  # as when a connection is lost: it refers to us
        patience, crowd = self.patience_seconds, self.crowd
        socket = SocketProtocol(
            self.config, self.server_state, self.app_state, self.sockets, patience_seconds=patience, crowd=crowd
        )
        self.transport.set_protocol(socket)
        socket.open(self.transport, dict(self.scope), key, early)

    def _begin_cycle(self, parser: HttpRequestParser, version: str) -> None:
        """Replaces uvicorn's, which creates cycles of its own class. We shed load elsewhere."""
        if len(self.pipeline) >= MOST_PIPELINED:
            raise HttpParserError
        before, app = self.cycle, cast(ASGI3Application, self.app)
        self.cycle = AnswerCycle(  # by position: an `__init__` written in Python takes keywords at twice the cost
            self.scope,
            self.transport,
            self.flow,
            self.logger,
            self.access_logger,
            self.access_log,
            self.server_state.default_headers,
            asyncio.Event(),
            self.expect_100_continue and version != "1.0",
            version != "1.0" and parser.should_keep_alive(),
            self.on_response_complete,
        )
        if before and not before.response_complete:  # the client pipelines requests
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, app))
        else:
            self._start_asgi_task(self.cycle, app)

    def on_body(self, body: bytes) -> None:
        self._has_advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._head_of_rest or self._socket_key is not None:
            return
        super().on_message_complete()
        self.flow.resume_reading()  # a long body may have paused reading, and disconnects are noticed only by reading
        self._told["is_whole"] = True
        self._whole_at = self.loop.time()

    def on_response_complete(self) -> None:
        """Replaces uvicorn's, which sets a timer per response and cancels it at the next request."""
        self.server_state.total_requests += 1
        self._silent_since = self.loop.time()
        if not self.transport.is_closing():
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
            self.flow.resume_reading()
        self._is_waiting = self.cycle.response_complete
        if self._is_waiting:
            if self._has_ended:
                self.transport.close()
            else:
                self.crowd.waits(self)

    def send_400_response(self, msg: str) -> None:
        """Never into a response in progress."""
        if self._is_waiting or not (self.pipeline or self.cycle.response_started):
            self._refuse(self._complaint)
        self.transport.close()

    def leave(self) -> None:
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._patience = asyncio.get_running_loop().call_later(self.patience_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._forget()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.crowd.gone(self)
        self._forget()
        self._rest()
        self._keep_alive.cancel()
        super().connection_lost(exc)
        for leave in tuple(self._leaving):
            leave()

    def _end_silence(self) -> None:
        """One timer for many requests, which checks the clock when it fires; requests and heads in progress have their
        own."""
        now = self.loop.time()
        is_silent = self._is_waiting and self._haste is None
        due = (self._silent_since if is_silent else now) + self.timeout_keep_alive
        if due > now:
            self._keep_alive = self.loop.call_at(due, self._end_silence)
        elif not self.transport.is_closing():
            self.transport.close()

    def _refuse_head(self, answer: bytes) -> None:
        if self._is_waiting and self._is_in_head:
            self._refuse(answer)
        self.transport.close()

    def _refuse(self, answer: bytes) -> None:
        self.transport.write(with_headers(answer, self.server_state.default_headers))

    def _is_last_word(self) -> bool:
        return not self.cycle.keep_alive and self.loop.time() - self._whole_at < self.last_word_seconds

    def _forget(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _rest(self) -> None:
        if self._haste is not None:
            self._haste.cancel()
            self._haste = None
