"""Connections to Redis that end while they are open or in use."""

import asyncio
import socket
import struct

import pytest
import uvloop
from redis.exceptions import ConnectionError as ConnectionLost

from gateway.storage.redis.client import connect_bytes
from tests.redis_server import RedisServer

pytestmark = [pytest.mark.faults, pytest.mark.integration]


async def test_connections_that_the_server_closed_fail_no_request(redis_server: RedisServer) -> None:
    """As a server does when it restarts, and many do after some idle minutes."""
    client, other = connect_bytes(redis_server.url), connect_bytes(redis_server.url)
    await asyncio.gather(*(client.get("x") for _ in range(5)))
    await other.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await asyncio.sleep(0.01)  # until the client notices
    await asyncio.gather(*(client.get("x") for _ in range(5)))
    for each in (client, other):
        await each.aclose()


def test_a_lost_connection_is_an_outage_under_uvloop_too() -> None:
    """uvloop raises a RuntimeError where asyncio raises a reset, which ended a background task."""
    is_connected = asyncio.Event()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"%0\r\n+OK\r\n+OK\r\n")
        await is_connected.wait()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def send() -> None:
        async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
            client = connect_bytes(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            connection = client.connection_pool.make_connection()
            await connection.connect()
            is_connected.set()
            ours = connection._writer  # pyright: ignore[reportPrivateUsage]
            assert ours is not None
            while not ours.is_closing():
                await asyncio.sleep(0.001)
            with pytest.raises(ConnectionLost):
                await connection.send_command("PING")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(send())
