"""An offer to switch to another protocol leaves a request as it is, with its body, connection and what follows."""

import asyncio
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.process.no_requests import NO_REQUEST
from gateway.process.offers import head_of_rest
from gateway.process.patient_protocol import patient_protocol
from tests.live_server import serving

H2C = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\nUpgrade: h2c\r\n"
OFFERS = [
    H2C,
    b"upgrade: websocket\r\nconnection: upgrade\r\n",
    b"Upgrade: a, b\r\nConnection: keep-alive, upgrade\r\n",
]
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


def with_length(offer: bytes) -> bytes:
    return b"POST /a HTTP/1.1\r\nHost: x\r\n%bContent-Length: %d\r\n\r\n%b" % (offer, len(SMUGGLED), SMUGGLED)


def in_chunks(offer: bytes) -> bytes:
    head = b"POST /a HTTP/1.1\r\nHost: x\r\n%bTransfer-Encoding: chunked\r\n\r\n" % offer
    return b"%b5\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (head, SMUGGLED[:5], len(SMUGGLED) - 5, SMUGGLED[5:])


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await Response(scope["path"].encode() + b" " + body)(scope, receive, send)


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
    return await reader.readexactly(int(length[16:]))


@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.parametrize("request_with", [with_length, in_chunks])
@pytest.mark.parametrize("at_once", [1 << 16, 7, 1])
async def test_a_body_is_never_the_next_request_however_it_is_cut(
    offer: bytes, request_with: Callable[[bytes], bytes], at_once: int
) -> None:
    sent = request_with(offer) + SMUGGLED.replace(b"smuggled", b"next")
    async with serving(echo, http=patient_protocol(30.0)) as url, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
        for _ in range(2):
            for start in range(0, len(sent), at_once):
                writer.write(sent[start : start + at_once])
                await writer.drain()
                await asyncio.sleep(0)
            assert await answer_of(reader) == b"/a " + SMUGGLED
            assert await answer_of(reader) == b"/next "
        writer.close()


@pytest.mark.parametrize("offer", OFFERS)
async def test_what_follows_a_request_without_a_body_is_answered_too(offer: bytes) -> None:
    async with serving(echo, http=patient_protocol(30.0)) as url, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
        writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n" + offer + b"\r\n" + SMUGGLED)
        assert await answer_of(reader) == b"/a "
        assert await answer_of(reader) == b"/smuggled "
        writer.close()


async def test_a_body_that_is_none_ends_the_connection() -> None:
    async with serving(echo, http=patient_protocol(30.0)) as url, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
        writer.write(
            b"POST /a HTTP/1.1\r\nHost: x\r\n" + H2C + b"Transfer-Encoding: chunked\r\n\r\nno chunk\r\n" + SMUGGLED
        )
        assert (await reader.read()).startswith(NO_REQUEST.partition(b"\r\n")[0])
        writer.close()


@pytest.mark.parametrize(
    ("headers", "head"),
    [
        ([], b""),
        ([(b"host", b"x"), (b"upgrade", b"h2c")], b""),
        ([(b"content-length", b"0")], b""),
        ([(b"content-length", b"12"), (b"x", b"y")], b"POST / HTTP/1.1\r\ncontent-length: 12\r\n\r\n"),
        ([(b"transfer-encoding", b"chunked")], b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"),
    ],
)
def test_how_the_rest_begins(headers: list[tuple[bytes, bytes]], head: bytes) -> None:
    assert head_of_rest(headers) == head
