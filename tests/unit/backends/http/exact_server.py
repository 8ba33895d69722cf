"""A server that sends exactly the bytes that a test specifies, and a client for it."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from backends.http.http1_client import Http1Client
from backends.protocol import Timeouts

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncGenerator[str]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client disconnected, as intended by some tests
        finally:
            writer.close()

    running = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    scheme = "https" if tls else "http"
    try:
        yield f"{scheme}://127.0.0.1:{running.sockets[0].getsockname()[1]}/v1/x"
    finally:
        running.close()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            head += await reader.readexactly(int(line.split(b":")[1]))
    return head


def says(*answers: bytes, keeps: bool = True) -> Handler:
    """Sends one answer per request; then the connection is closed, or kept open in silence."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await read_request(reader)
            writer.write(answer)
            await writer.drain()
        if keeps:
            await reader.read()

    return handler


@asynccontextmanager
async def client() -> AsyncGenerator[Http1Client]:
    made = Http1Client("b")
    try:
        yield made
    finally:
        await made.aclose()


async def fetch(made: Http1Client, url: str, body: bytes | None = b"{}") -> tuple[int, bytes]:
    response = await made.send("POST", url, {"x-a": "1"}, body, timeouts=Timeouts())
    pieces: list[bytes] = []
    while piece := await response.read():
        pieces.append(piece)
    response.finish()
    return response.status, b"".join(pieces)


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
