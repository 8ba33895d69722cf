"""A connection of an HTTP server in virtual time: records what is written, without a socket."""

import asyncio
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tests.virtual_time import now


class Wire(asyncio.Transport):
    """The protocol's transport; `ended` is the second at which it was closed."""

    def __init__(
        self,
        http: type[HttpToolsProtocol | H11Protocol],
        app: ASGIApp,
        *,
        keep_alive_seconds: int,
        server: ServerState | None = None,
    ) -> None:
        super().__init__()
        self.said = b""
        self.ended: float | None = None
        config = uvicorn.Config(app, lifespan="off", timeout_keep_alive=keep_alive_seconds)
        self.protocol = http(config, server or ServerState(), {})
        self.protocol.connection_made(self)

    async def hear(self, data: bytes) -> None:
        """Delivers bytes from the client, and runs everything that follows immediately."""
        if self.ended is None:
            self.protocol.data_received(data)
        for _ in range(9):
            await asyncio.sleep(0)

    def write(self, data: Any) -> None:
        self.said += data

    def is_closing(self) -> bool:
        return self.ended is not None

    def close(self) -> None:
        if self.ended is None:
            self.ended = now()
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Ignored: `drip` continues to send."""

    def resume_reading(self) -> None:
        """Ignored, too."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


async def drip(wire: Wire, piece: bytes) -> float:
    """Sends a piece every ten seconds until the connection is closed, which must happen; returns the second of it."""
    for _ in range(360):
        if wire.ended is not None:
            break
        await asyncio.sleep(10)
        await wire.hear(piece)
    assert wire.ended is not None, "for ever"
    return wire.ended


class Measuring:
    """An application that answers with the length of the body: at once, without reading it, for /unread, and an hour
    later for /slow. `left` has the clients that disconnected before the body was complete."""

    def __init__(self) -> None:
        self.left = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = b"" if scope["path"] == "/unread" else await Request(scope, receive).body()
        except ClientDisconnect:
            self.left += 1
            return
        if scope["path"] == "/slow":
            await asyncio.sleep(3600)
        said = f"{len(body)};"
        await Response(said, headers={"content-length": str(len(said))})(scope, receive, send)
