"""What a connection gets that sends no request, or one whose head or body does not end."""

import asyncio
import contextlib
import os
import re
import signal

import pytest
from starlette.types import Receive, Scope, Send

from gateway.process.no_requests import (
    HEAD_TOO_LONG,
    LONGEST_URL_BYTES,
    NO_HOST,
    NO_REQUEST,
    SEVERAL_KEYS,
    UNKNOWN_CODING,
    URL_TOO_LONG,
)
from gateway.process.patient_protocol import patient_protocol
from gateway.process.server import bind, serve_until_stopped
from tests.live_server import connected


class Mirror:
    """An application that reads the whole body, and then returns the headers and the length."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls += 1
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
        names = ",".join(name.decode() for name, _ in scope["headers"])
        said = f"{names} {size}".encode()
        headers = [(b"content-length", str(len(said)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": said})


def undated(heard: bytes) -> bytes:
    """The response without its date, which the server adds from its first second on."""
    return re.sub(rb"\r\ndate: [^\r]+ GMT|\r\nserver: [^\r]+", b"", heard)


IN_CHUNKS = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


async def heard_while_talking(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """What a client that sends nothing but letters receives until the connection ends. Letters sent after the end may
    reset the connection before the answer arrives; then it receives nothing."""
    heard = bytearray()

    async def hear() -> None:
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(4096):
                heard.extend(part)

    hearing = asyncio.create_task(hear())
    with contextlib.suppress(ConnectionError):
        while not hearing.done():
            writer.write(b"a" * 4096)
            await writer.drain()
            await asyncio.sleep(0)
    await hearing
    writer.close()
    return bytes(heard)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"GET /", URL_TOO_LONG),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx-long: ", HEAD_TOO_LONG),
        (b"GET / HTTP/1.1\r\nx-long-", HEAD_TOO_LONG),
    ],
)
async def test_a_head_without_end_is_refused_before_it_is_kept(start: bytes, said: bytes) -> None:
    app = Mirror()
    async with connected(app, patient_protocol(30.0)) as (reader, writer):
        writer.write(start)
        heard = await heard_while_talking(reader, writer)
    assert undated(heard) in (said, b"")
    assert not heard or b"\r\ndate: " in heard
    assert not app.calls


async def test_what_follows_a_body_joins_no_headers_and_has_an_end_too() -> None:
    app = Mirror()
    async with connected(app, patient_protocol(30.0)) as (reader, writer):
        writer.write(IN_CHUNKS + b"5\r\nhello\r\n0\r\nauthorization: Bearer other\r\n\r\n")
        assert (await reader.readuntil(b" 5")).endswith(b"host,transfer-encoding 5")
        # Many small parts of a body do not count as a head, however long they are together.
        writer.write(IN_CHUNKS + b"1\r\nx\r\n" * 40_000 + b"0\r\n\r\n")
        assert (await reader.readuntil(b" 40000")).endswith(b"host,transfer-encoding 40000")
        writer.write(IN_CHUNKS + b"5\r\nhello\r\n0\r\nx-long: ")
        assert await heard_while_talking(reader, writer) == b""
    assert app.calls == 3


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", NO_REQUEST),
        (b"BREW / HTTP/1.1\r\n\r\n", NO_REQUEST),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx-a : b\r\n\r\n", NO_REQUEST),
        (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\na", NO_REQUEST),
        (IN_CHUNKS + b"five\r\nhello\r\n", NO_REQUEST),
        (b"CONNECT x:80 HTTP/1.1\r\nhost: x\r\n\r\n", NO_REQUEST),
        (b"GET http:///x HTTP/1.1\r\nhost: x\r\n\r\n", NO_REQUEST),
        (b"GET http://x:99999/ HTTP/1.1\r\nhost: x\r\n\r\n", NO_REQUEST),
        (b"GET /" + b"a" * LONGEST_URL_BYTES + b" HTTP/1.1\r\nhost: x\r\n\r\n", URL_TOO_LONG),
        (IN_CHUNKS.replace(b"chunked", b"gzip, chunked") + b"5\r\nhello\r\n", UNKNOWN_CODING),
        (IN_CHUNKS.replace(b"x\r\n", b"x\r\ntransfer-encoding: gzip\r\n") + b"5\r\nhello\r\n", UNKNOWN_CODING),
        (b"\r\n" * 40_000 + b"GET / HTTP/1.1\r\n\r\n", NO_HOST),
        (b"GET / HTTP/1.1\r\n\r\n", NO_HOST),
        (b"GET / HTTP/1.1\r\nhost: x\r\nHost: x\r\n\r\n", NO_HOST),
        (b"GET / HTTP/1.0\r\nhost: x\r\nhost: y\r\n\r\n", NO_HOST),
        (b"GET / HTTP/1.1\r\nhost: x, y\r\n\r\n", NO_HOST),
        (b"GET / HTTP/1.1\r\nhost: x\r\nAuthorization: a\r\nauthorization: b\r\n\r\n", SEVERAL_KEYS),
    ],
)
async def test_what_is_no_request_is_told_so_and_does_not_fill_the_log(
    sent: bytes, said: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with bind("127.0.0.1", 0) as listener:
        running = asyncio.create_task(serve_until_stopped(Mirror(), listener, drain_seconds=1))
        async with asyncio.timeout(300):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(sent)
            assert undated(await reader.read()) == said
            writer.close()
            os.kill(os.getpid(), signal.SIGTERM)
            await running
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "host"),
    [
        *((b"/", host) for host in (b"", b"x", b"my_service.svc.cluster.local:8080", b"[::1]:8080", b"127.0.0.1:1")),
        (b"/", b"xn--bcher-kva.example"),
        *((target, b"x") for target in (b"http://x", b"http://x/", b"http://x?a=b")),
    ],
)
async def test_hosts_as_they_are_named_are_served_also_in_an_address_without_a_path(target: bytes, host: bytes) -> None:
    async with connected(Mirror(), patient_protocol(30.0)) as (reader, writer):
        writer.write(b"GET %b HTTP/1.1\r\nhost: %b\r\nconnection: close\r\n\r\n" % (target, host))
        assert (await reader.read()).startswith(b"HTTP/1.1 200")


async def test_no_request_behind_one_that_is_being_answered_is_not_told_so_in_the_middle_of_that_answer() -> None:
    app = Begun()
    async with connected(app, patient_protocol(30.0)) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await reader.readuntil(b"one\r\n")).startswith(b"HTTP/1.1 200")
        writer.write(b"no request\r\n\r\n")
        assert await reader.read() == b""


class Begun:
    """An application that sends a piece, and waits for its caller to leave."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
