"""An offer of HTTP/2 leaves a request as it is, body and connection included."""

import asyncio
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.process.http2_offers import without_offer
from gateway.process.patient_protocol import patient_protocol
from tests.live_server import serving

OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\nUpgrade: h2c\r\n"
BODY = b'{"says": "Upgrade: h2c"}'
WHOLE = b"POST /a HTTP/1.1\r\nHost: x\r\n" + OFFER + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
IN_CHUNKS = (
    b"POST /a HTTP/1.1\r\nHost: x\r\n"
    + OFFER
    + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(BODY)
    + BODY
    + b"\r\n0\r\n\r\n"
)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await Response(body or b"nothing", headers={"x-path": scope["path"]})(scope, receive, send)


@pytest.mark.parametrize("request_bytes", [WHOLE, IN_CHUNKS], ids=["with a length", "in chunks"])
async def test_the_body_arrives_and_the_connection_serves_on(request_bytes: bytes) -> None:
    async with serving(echo, http=patient_protocol(30.0)) as url, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
        for _ in range(2):
            writer.write(request_bytes)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(len(BODY)) == BODY
        writer.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n\r\nUpgrade: h2c\r\n",
        b'{"a":"h2c"}',
        b"",
    ],
)
def test_anything_else_stays_as_it_is(data: bytes) -> None:
    assert without_offer(data) == data


def test_an_offer_is_found_however_it_is_written() -> None:
    assert without_offer(b"GET / HTTP/1.1\r\nUPGRADE:h2c \r\n\r\n") == b"GET / HTTP/1.1\r\nx-offer:h2c \r\n\r\n"
