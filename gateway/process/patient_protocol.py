"""One HTTP/1.1 connection of ours: uvicorn's, which here waits for no client for ever and tells who left."""

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
from gateway.process.no_requests import HEAD_TOO_LONG, HEAD_TOO_SLOW, NO_HOST, NO_REQUEST, names_its_host
from gateway.process.offers import head_of_rest
from gateway.process.open_files import connections_within, open_files

LAST_PATIENCES = 10
"""For the end of an answer on a connection that is closed already: whoever reads slowly has megabytes before it in the
system's buffers, and the system tells of room only when a third of them is free."""
LAST_WORD_SECONDS = 0.5
"""After its last request so soon, the end of what a client sends is no more than that. Later it is the client's end."""
LONGEST_HEAD_BYTES = 1 << 16
"""Beyond what comes with its first bytes. The parser itself keeps whatever comes, for anybody."""
MOST_PIPELINED = 100
"""Requests that wait for the answers to those before them. Each takes 2 KB, and one read may hold thousands."""
CONNECTION = "breakeven.connection"
"""The ASGI extension of our own server. `listeners` are called when the connection is lost: a task that waits for
`http.disconnect` costs each request more than its parsing. `is_whole` is there once the request has come whole."""


def patient_protocol(
    seconds: float, *, most: int | None = None, last_word_seconds: float = LAST_WORD_SECONDS
) -> type[HttpToolsProtocol]:
    """PatientProtocol for one server, which bears `most` connections at once, or as many as there may be open files.
    Make it where the event loop runs.
    """
    crowd = Crowd(connections_within(open_files()) if most is None else most)
    of_this_server = {"patience_seconds": seconds, "last_word_seconds": last_word_seconds, "crowd": crowd}
    return type("PatientProtocol", (PatientProtocol,), of_this_server)


class _InTurn(FlowControl):
    """Reads no more while requests wait: every answer, and whoever asks for a body that is there, let thousands in."""

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        if not self._waiting:
            super().resume_reading()


class PatientProtocol(HttpToolsProtocol):
    """HTTP/1.1 that drops a client which takes nothing for so long while there is something for it to take.

    Until then writing to it waits, and so does reading from upstream: its answer does not pile up here. Only a
    connection whose buffer is full has a timer, so that nothing is paid for all the others. As long has a head that
    comes in pieces, and what is left of a request that was answered already; a body is timed by who reads it. Of too
    many connections those that wait longest for a request are closed, and those at once that send neither the end of a
    head nor a part of a body for too long.
    """

    # What `patient_protocol` sets, for all connections of one server.
    patience_seconds: float
    last_word_seconds: float
    crowd: Crowd

    _patience: asyncio.TimerHandle | None = None
    _haste: asyncio.TimerHandle | None = None
    """Of what came and will not be looked at before its end: it earns no time by coming slowly."""
    _whole_at = float("-inf")
    _is_waiting = True
    """For its next request, or the first."""
    _is_in_head = False
    _has_ended = False
    _unread_bytes = 0
    _has_advanced = False
    """Since data came last: a head began or ended, or there was a part of a body."""
    _complaint = NO_REQUEST
    _head_of_rest = b""
    """Of a request that offers another protocol, until the parser has been made to read its body."""
    _is_rest = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
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
            self._refuse_head(HEAD_TOO_LONG)
        elif self._is_waiting and self._haste is None:
            self._haste = self.loop.call_later(self.patience_seconds, self._refuse_head, HEAD_TOO_SLOW)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether to stay: somebody who only has nothing more to say is answered. Closing a connection looks the
        same, and a call that nobody waits for costs money: it goes on only for who announced that it is the last.
        """
        is_answered = not self._is_waiting and "is_whole" in self._told
        self._has_ended = is_answered and (not self._leaving or self._is_last_word())
        self._corked.flush()  # the event loop closes what is below it, and an answer may be complete here
        return self._has_ended

    def _parse(self, data: bytes) -> None:
        """In place of uvicorn's, which looks at nothing behind an offer of another protocol."""
        parser = self.parser
        assert parser, "nothing comes over a lost connection"
        while data:
            try:
                parser.feed_data(data)
                return
            except HttpParserUpgrade as offer:
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
        if not names_its_host(self.headers, version):
            self._complaint = NO_HOST
            raise HttpParserError
        target = parse_url(self.url)  # raises for what names no address: `CONNECT host:80`, `GET http:///`
        self._has_advanced = True
        self._is_waiting = self._is_in_head = False
        self._rest()
        self.crowd.busy(self)
        self._begin_cycle(self.parser, version, target)
        if self.parser.should_upgrade():
            self._head_of_rest = head_of_rest(self.headers)
        self.headers = []  # what follows a body in chunks must not join them: nobody in front of us looked at it
        if version == "1.0":
            use_close_delimited(self.cycle)

    def _begin_cycle(self, parser: HttpRequestParser, version: str, target: URL) -> None:
        """In place of uvicorn's, whose cycles are of its own class. We upgrade to nothing, and shed load elsewhere."""
        if len(self.pipeline) >= MOST_PIPELINED:
            raise HttpParserError
        raw_path = target.path or b"/"  # `GET http://host` has none
        path = raw_path.decode("ascii")
        self.scope["method"] = parser.get_method().decode("ascii")
        self.scope["http_version"] = version
        self.scope["path"] = self.root_path + (unquote(path) if "%" in path else path)
        self.scope["raw_path"] = self.root_path.encode("ascii") + raw_path
        self.scope["query_string"] = target.query or b""
        before, app = self.cycle, cast(ASGI3Application, self.app)
        self.cycle = AnswerCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue and version != "1.0",
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if before and not before.response_complete:  # the client sends requests without waiting for answers
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, app))
        else:
            self._start_asgi_task(self.cycle, app)

    def on_body(self, body: bytes) -> None:
        self._has_advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._head_of_rest:
            return
        super().on_message_complete()
        self.flow.resume_reading()  # a long body held it back, and who leaves is heard by reading on
        self._told["is_whole"] = True
        self._whole_at = self.loop.time()

    def on_response_complete(self) -> None:
        """In place of uvicorn's, which sets a timer for each answer and cancels it at the next request."""
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
        """Not into an answer that is going out."""
        if self._is_waiting or not (self.pipeline or self.cycle.response_started):
            self.transport.write(self._complaint)
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
        """Rings once for many requests, and looks at the clock: who is served or in a head has other timers."""
        now = self.loop.time()
        is_silent = self._is_waiting and self._haste is None
        due = (self._silent_since if is_silent else now) + self.timeout_keep_alive
        if due > now:
            self._keep_alive = self.loop.call_at(due, self._end_silence)
        elif not self.transport.is_closing():
            self.transport.close()

    def _refuse_head(self, answer: bytes) -> None:
        if self._is_waiting and self._is_in_head:
            self.transport.write(answer)
        self.transport.close()

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
