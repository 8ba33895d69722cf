import asyncio

import pytest
from uvicorn.server import ServerState

from local_engine.server.http_protocol import (
    HEAD_TOO_LONG,
    NO_REQUEST,
    PATIENCE_SECONDS,
    BoundedProtocol,
)
from tests.virtual_time import run
from tests.virtual_wire import Measuring, Wire, drip

POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


def connect() -> Wire:
    return Wire(BoundedProtocol, Measuring(), keep_alive_seconds=5)


def test_a_connection_over_which_nothing_comes_is_closed() -> None:
    async def scene() -> tuple[float | None, bytes]:
        wire = connect()
        await asyncio.sleep(3600)
        return wire.ended, wire.said

    assert run(scene) == (PATIENCE_SECONDS, b"")


def test_one_connection_too_many_is_refused_and_makes_room_for_the_next() -> None:
    """Without a descriptor left asyncio accepted nobody, and wrote a megabyte of errors a second."""

    async def scene() -> list[bytes]:
        server = ServerState()
        few = type("Few", (BoundedProtocol,), {"most": 2})
        wires: list[Wire] = []
        for _ in range(4):
            wires.append(Wire(few, Measuring(), keep_alive_seconds=5, server=server))
            await wires[-1].hear(GET)
            if len(wires) == 3:
                wires[0].close()
                await asyncio.sleep(0)
        return [wire.said[9:12] for wire in wires]

    assert run(scene) == [b"200", b"200", b"503", b"200"]


def test_empty_lines_before_a_head_earn_no_time() -> None:
    async def scene() -> tuple[float, bytes]:
        wire = connect()
        await wire.hear(b"\r\n")
        return await drip(wire, b"\r\n"), wire.said

    assert run(scene) == (PATIENCE_SECONDS, b"")


@pytest.mark.parametrize("behind", [b"GET / HT", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf"])
def test_what_is_behind_a_long_answer_does_not_cut_it(behind: bytes) -> None:
    async def scene() -> tuple[bytes, float | None]:
        wire = connect()
        await wire.hear(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n" + behind)
        await asyncio.sleep(3601)
        said = wire.said
        await asyncio.sleep(3600)
        return said, wire.ended

    said, ended = run(scene)
    assert said.endswith(b"0;")
    assert ended is not None


def test_a_head_without_end_is_refused_before_it_is_kept() -> None:
    async def scene() -> tuple[bytes, float | None]:
        wire = connect()
        await wire.hear(b"GET / HTTP/1.1\r\nx-long: ")
        for _ in range(30):
            await wire.hear(b"a" * 4096)
        return wire.said, wire.ended

    assert run(scene) == (HEAD_TOO_LONG, 0)


def test_many_small_parts_of_a_body_are_no_head() -> None:
    async def scene() -> bytes:
        wire = connect()
        await wire.hear(CHUNKED)
        for _ in range(500):
            await wire.hear(b"1\r\na\r\n" * 100)
        await wire.hear(b"0\r\n\r\n")
        return wire.said

    assert run(scene).endswith(b"50000;")


GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nHost: y\r\n\r\n",
        b"GET / HTTP/1.0\r\nhost: x\r\nhost: x\r\n\r\n",
        CHUNKED + b"five\r\n",
    ],
)
def test_what_is_no_request_is_told_so_also_after_one_that_was(sent: bytes) -> None:
    async def scene() -> tuple[bytes, bytes, float | None]:
        fresh, used = connect(), connect()
        await fresh.hear(sent)
        await used.hear(GET)
        assert used.said.endswith(b"0;")
        answered = len(used.said)
        await used.hear(sent)
        assert used.ended == 0
        return fresh.said, used.said[answered:], fresh.ended

    assert run(scene) == (NO_REQUEST, NO_REQUEST, 0)


def test_http_1_0_knows_no_host() -> None:
    async def scene() -> bytes:
        wire = connect()
        await wire.hear(b"GET / HTTP/1.0\r\n\r\n")
        return wire.said

    assert run(scene).startswith(b"HTTP/1.1 200")
