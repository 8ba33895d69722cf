"""TCP_NODELAY is set towards callers and upstreams, on production's event loop and on asyncio's own."""

import asyncio
import os
import socket
from collections.abc import Callable

import pytest
from starlette.types import Receive, Scope, Send

from backends.http.http1_client import Http1Client
from backends.protocol import Timeouts
from gateway.process.patient_protocol import patient_protocol
from gateway.process.server import loop_factory
from tests.live_server import serving

pytestmark = pytest.mark.integration
Loops = Callable[[], asyncio.AbstractEventLoop] | None


def has_no_delay(transport: asyncio.BaseTransport) -> bool:
    """Asks the kernel, since the socket that a loop exposes may be a stand-in."""
    with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as same:
        return same.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def greet(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def both_sides() -> tuple[list[bool], list[bool]]:
    """(connections accepted by the gateway's server, connections opened by its client)."""
    taken: list[bool] = []

    class Watched(patient_protocol(60.0)):
        def connection_made(self, transport: asyncio.Transport) -> None:
            taken.append(has_no_delay(transport))
            super().connection_made(transport)

    async with serving(greet, http=Watched) as url:
        client = Http1Client("b")
        response = await client.send("GET", url, {}, None, timeouts=Timeouts(connect_seconds=60.0))
        assert await response.read() == b"hello"
        opened = [has_no_delay(one._transport) for one in client._open]  # pyright: ignore[reportPrivateUsage]
        response.close()
        await client.aclose()
    return taken, opened


@pytest.mark.parametrize("loops", [loop_factory(), None], ids=["production", "asyncio"])
def test_nothing_small_is_held_back(loops: Loops) -> None:
    with asyncio.Runner(loop_factory=loops) as runner:
        taken, opened = runner.run(both_sides())
    assert (taken, opened) == ([True], [True])
