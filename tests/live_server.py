"""Any ASGI application on a real socket of the loopback interface, for as long as a test needs it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp

from gateway.process.server import KEEP_ALIVE_SECONDS, bind


@asynccontextmanager
async def serving(app: ASGIApp, *, http: type[asyncio.Protocol] | None = None) -> AsyncGenerator[str]:
    """The base URL of the running server."""
    listener = bind("127.0.0.1", 0)
    config = uvicorn.Config(
        app, http=http or "auto", log_level="warning", lifespan="off", timeout_keep_alive=KEEP_ALIVE_SECONDS
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


@asynccontextmanager
async def connected(
    app: ASGIApp, http: type[asyncio.Protocol]
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A bare connection to it."""
    async with serving(app, http=http) as url, asyncio.timeout(300):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        yield reader, writer
        writer.close()
