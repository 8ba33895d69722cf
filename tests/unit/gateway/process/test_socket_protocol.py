"""WebSockets on a server's connections: where they are opened, what they may hold, and how they end."""

import asyncio
import gc
import os
import signal
import struct
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from gateway.process.offers import socket_key_of
from gateway.process.patient_protocol import patient_protocol
from gateway.process.server import bind, serve_until_stopped
from gateway.process.socket_protocol import STOPPING, SocketProtocol, Sockets
from tests.live_server import serving
from tests.virtual_time import run
from tests.virtual_wire import Wire
from tests.waiting import until

KEY = b"AAAAAAAAAAAAAAAAAAAAAA=="
OFFER = (
    b"GET /echo?a=b HTTP/1.1\r\nHost: x\r\nx-own: 1\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + KEY + b"\r\n\r\n"
)
MASK = bytes(4)
TEXT, CONTINUATION, PING, IS_LAST = 0x1, 0x0, 0x9, 0x80
SMALL = 1000


def frame(kind: int, data: bytes) -> bytes:
    """As clients send it: masked, here with zeros."""
    length = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack("!H", len(data))
    return bytes([kind]) + length + MASK + data


class Echo:
    """Sends back each message that is not empty; over HTTP the path. `scopes` are those of the WebSockets."""

    def __init__(self, *, may_accept: asyncio.Event | None = None) -> None:
        self.scopes: list[Scope] = []
        self.codes: list[int] = []
        self._may_accept = may_accept

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await Response(Request(scope).url.path)(scope, receive, send)
            return
        self.scopes.append(scope)
        await receive()
        if self._may_accept is not None:
            await self._may_accept.wait()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            if message["text"]:
                await send({"type": "websocket.send", "text": message["text"]})
        if message["type"] == STOPPING:
            await send({"type": "websocket.close", "code": 1012})
        else:
            self.codes.append(message["code"])


@asynccontextmanager
async def served(app: Echo, *, most_arriving: int = 10 * SMALL) -> AsyncGenerator[tuple[str, Sockets]]:
    sockets = Sockets(lambda path: path == "/echo", largest_bytes=SMALL, most_arriving_bytes=most_arriving)
    async with serving(app, http=patient_protocol(30.0, sockets=sockets)) as url, asyncio.timeout(60):
        yield url, sockets


async def dialed(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)


async def opened(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await dialed(url)
    writer.write(OFFER)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    return reader, writer


async def close_code(reader: asyncio.StreamReader) -> int:
    """Of a connection over which nothing else comes but answers to pings."""
    said = await reader.read()
    while said[0] == 0x8A:
        said = said[2 + said[1] :]
    assert said[0] == 0x88
    return int(struct.unpack("!H", said[2:4])[0])


async def test_one_is_opened_after_other_requests_and_its_first_message_may_come_with_the_offer() -> None:
    app = Echo()
    async with served(app) as (url, _):
        reader, writer = await dialed(url)
        writer.write(b"GET /before HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"/before")
        writer.write(OFFER + frame(TEXT | IS_LAST, b"early"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 Switching Protocols")
        assert b"Sec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=" in head
        assert await reader.readexactly(7) == b"\x81\x05early"
        writer.close()
    [scope] = app.scopes
    assert (scope["path"], scope["query_string"]) == ("/echo", b"a=b")
    assert (b"x-own", b"1") in scope["headers"]


@pytest.mark.parametrize(
    "offer",
    [
        OFFER.replace(b"/echo", b"/elsewhere"),
        OFFER.replace(b"GET", b"POST"),
        OFFER.replace(b"Version: 13", b"Version: 12"),
        OFFER.replace(KEY, b"short"),
        OFFER.replace(b"WebSocket\r\n", b"h2c\r\n"),
    ],
)
async def test_any_other_offer_is_ignored(offer: bytes) -> None:
    app = Echo()
    async with served(app) as (url, _):
        reader, writer = await dialed(url)
        writer.write(offer + b"GET /after HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"/after")).startswith(b"HTTP/1.1 200 ")
        writer.close()
    assert not app.scopes


async def test_an_offer_behind_a_request_that_is_not_answered_yet_is_ignored() -> None:
    app = Echo()
    async with served(app) as (url, _):
        reader, writer = await dialed(url)
        writer.write(b"GET /first HTTP/1.1\r\nHost: x\r\n\r\n" + OFFER)
        await reader.readuntil(b"/first")
        assert (await reader.readuntil(b"/echo")).count(b"HTTP/1.1 200 ") == 1
        writer.close()
    assert not app.scopes


def test_an_offer_with_a_body_opens_nothing() -> None:
    headers = [(b"upgrade", b"websocket"), (b"sec-websocket-version", b"13"), (b"sec-websocket-key", KEY)]
    assert socket_key_of(b"GET", "1.1", headers) == KEY
    assert socket_key_of(b"GET", "1.0", headers) is None
    assert socket_key_of(b"GET", "1.1", [*headers, (b"content-length", b"5")]) is None
    assert socket_key_of(b"GET", "1.1", [*headers, (b"transfer-encoding", b"chunked")]) is None


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(TEXT | IS_LAST, bytes(SMALL + 1)), 1009),
        (frame(TEXT, b"a") + frame(PING | IS_LAST, bytes(125)) * 700, 1009),  # 90 KB that are no message
        (frame(TEXT, b"a") + frame(CONTINUATION, b"") * 10_000, 1013),
        (frame(PING | IS_LAST, b"") * 10_000, 1013),
        (frame(TEXT | IS_LAST, b"") * 10_000, 1013),
        (frame(TEXT | IS_LAST, b"\xff"), 1007),
        (b"\x81\x01a", 1002),  # not masked
    ],
    ids=["large", "amid-a-message", "fragments", "pings", "too-many", "not-utf-8", "not-masked"],
)
@pytest.mark.parametrize("with_the_offer", [False, True])
async def test_what_is_no_message_ends_it_and_fills_no_log(
    sent: bytes, code: int, with_the_offer: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    app = Echo()
    async with served(app, most_arriving=1 << 20) as (url, sockets):
        reader, writer = await (dialed(url) if with_the_offer else opened(url))
        writer.write(OFFER + sent if with_the_offer else sent)
        if with_the_offer:
            await reader.readuntil(b"\r\n\r\n")
        assert await close_code(reader) == code
        writer.close()
        await until(lambda: app.codes == [code])
        assert sockets.arriving_bytes == 0
    assert "Traceback" not in capsys.readouterr().err


async def test_messages_that_never_end_take_only_so_much_from_all_together() -> None:
    async with served(Echo(), most_arriving=1500) as (url, sockets):
        reader, writer = await opened(url)
        writer.write(frame(TEXT, bytes(900)))
        await until(lambda: sockets.arriving_bytes > 900)
        another_reader, another = await opened(url)
        another.write(frame(TEXT, bytes(900)))
        assert await close_code(another_reader) == 1013
        another.close()
        writer.write(frame(CONTINUATION | IS_LAST, b"a"))
        assert (await reader.readexactly(4))[0] == 0x81
        await until(lambda: sockets.arriving_bytes == 0)
        writer.close()


async def test_nothing_is_read_before_it_is_accepted() -> None:
    may_accept = asyncio.Event()
    app = Echo(may_accept=may_accept)
    async with served(app) as (url, sockets):
        reader, writer = await dialed(url)
        writer.write(OFFER)
        await until(lambda: app.scopes)
        writer.write(frame(TEXT | IS_LAST, b"later"))
        await asyncio.sleep(0.05)
        assert sockets.arriving_bytes == 0
        may_accept.set()
        await reader.readuntil(b"later")
        writer.close()


class Gate(Wire):
    """A transport that records whether reading is paused, and hands itself over."""

    is_read = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = cast(Any, protocol)

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


def test_who_accepts_no_data_is_not_read_and_then_dropped() -> None:
    """Each ping that is read is answered."""

    async def scene() -> tuple[list[bool], float | None]:
        sockets = Sockets(lambda path: True, largest_bytes=SMALL, most_arriving_bytes=SMALL)
        wire = Gate(patient_protocol(30.0, most=9, sockets=sockets), Echo(), keep_alive_seconds=75)
        await wire.hear(OFFER)
        seen = [wire.is_read]
        wire.protocol.pause_writing()
        await asyncio.sleep(29)
        await wire.hear(frame(TEXT | IS_LAST, b""))
        seen.append(wire.is_read)
        wire.protocol.resume_writing()
        seen.append(wire.is_read)
        await asyncio.sleep(29)
        wire.protocol.pause_writing()
        await asyncio.sleep(31)
        return seen, wire.ended

    assert run(scene) == ([True, False, True], 88)


def test_of_too_many_connections_sockets_that_are_silent_longest_are_told_to_close() -> None:
    async def scene() -> tuple[list[bool], bytes]:
        sockets = Sockets(lambda path: True, largest_bytes=SMALL, most_arriving_bytes=SMALL)
        http = patient_protocol(30.0, most=2, sockets=sockets)
        wires: list[Gate] = []
        for _ in range(3):
            wires.append(Gate(http, Echo(), keep_alive_seconds=75))
            await wires[-1].hear(OFFER)
            await asyncio.sleep(0.1)
            await wires[0].hear(frame(TEXT | IS_LAST, b"busy"))
        await asyncio.sleep(5)
        return [wire.ended is None for wire in wires], wires[1].said[-4:]

    assert run(scene) == ([True, False, True], b"\x88\x02" + struct.pack("!H", 1012))


def test_of_one_that_is_lost_amid_a_message_nothing_stays() -> None:
    """Cycles are searched for seldom (native/cycles.py), and each held up to the largest message."""

    async def scene() -> "list[weakref.ref[Any]]":
        sockets = Sockets(lambda path: True, largest_bytes=SMALL, most_arriving_bytes=SMALL)
        wire = Gate(patient_protocol(30.0, most=9, sockets=sockets), Echo(), keep_alive_seconds=75)
        http = weakref.ref(wire.protocol)
        await wire.hear(OFFER)
        await wire.hear(frame(TEXT, b"a") + frame(CONTINUATION, bytes(500))[:300])
        left = weakref.ref(cast(SocketProtocol, wire.protocol).conn)
        wire.close()
        await asyncio.sleep(100)  # until no timer is left
        wire.protocol = cast(Any, None)  # of the test's own cycle
        return [http, left]

    gc.disable()
    try:
        assert [one() for one in run(scene)] == [None, None]
    finally:
        gc.enable()


async def test_a_server_that_stops_tells_the_application_and_waits_for_it() -> None:
    app = Echo()
    sockets = Sockets(lambda path: path == "/echo", largest_bytes=SMALL, most_arriving_bytes=SMALL)
    with bind("127.0.0.1", 0) as listener:
        running = asyncio.create_task(serve_until_stopped(app, listener, drain_seconds=300, sockets=sockets))
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}/echo"
        async with connect(url) as socket:
            await socket.send("hello")
            assert await socket.recv() == "hello"
            reader, writer = await opened(url)
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(socket.recv(), 60)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
            assert await asyncio.wait_for(close_code(reader), 60) == 1012, "who never closes its side is not waited for"
            await asyncio.wait_for(running, 60)
            writer.close()
