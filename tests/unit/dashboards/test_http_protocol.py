"""Time limits of connections to the web UI, in virtual time and once on a socket."""

import asyncio
import logging
import resource

import pytest
from uvicorn.server import ServerState

from dashboards.http_protocol import PATIENCE_SECONDS, TOO_SLOW, BoundedProtocol, bounded, most_connections
from tests.virtual_time import run
from tests.virtual_wire import Measuring, Wire, drip

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
KEEP_ALIVE_SECONDS = 5


def connect() -> Wire:
    return Wire(BoundedProtocol, Measuring(), keep_alive_seconds=KEEP_ALIVE_SECONDS)


def test_who_says_nothing_is_let_go_without_a_word() -> None:
    async def scene() -> tuple[float | None, bytes]:
        wire = connect()
        await asyncio.sleep(3600)
        return wire.ended, wire.said

    assert run(scene) == (PATIENCE_SECONDS, b"")


def test_a_second_head_has_its_own_time() -> None:
    async def scene() -> tuple[float, bytes]:
        wire = connect()
        await asyncio.sleep(50)
        await wire.hear(GET)
        await asyncio.sleep(4)
        await wire.hear(b"GET /")
        return await drip(wire, b"a"), wire.said

    ended, said = run(scene)
    assert ended == 54 + PATIENCE_SECONDS
    assert said.endswith(b"0;" + TOO_SLOW)


def test_a_body_whose_answer_is_out_earns_no_time_however_much_of_it_comes() -> None:
    async def scene() -> float:
        wire = connect()
        await wire.hear(POST.replace(b"/ ", b"/unread ").replace(b"1000000", b"100000000"))
        return await drip(wire, b"x" * 10_000)

    assert run(scene) == PATIENCE_SECONDS


def test_what_is_behind_a_long_answer_does_not_cut_it_and_has_its_own_time_after_it() -> None:
    async def scene() -> tuple[bytes, float | None]:
        wire = connect()
        await wire.hear(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\nGET /")
        await asyncio.sleep(3601)
        said = wire.said
        await asyncio.sleep(3600)
        return said, wire.ended

    said, ended = run(scene)
    assert said.endswith(b"0;")
    assert ended == 3600 + PATIENCE_SECONDS


def test_too_many_connections_cost_the_longest_awaited_and_no_answer() -> None:
    """One of four is being served, one sends its body slowly, one is silent, one sends a request; three more arrive."""

    async def scene() -> list[tuple[float | None, bytes]]:
        server, narrow = ServerState(), bounded(4)

        async def come(sent: bytes = b"") -> Wire:
            wire = Wire(narrow, Measuring(), keep_alive_seconds=KEEP_ALIVE_SECONDS, server=server)
            if sent:
                await wire.hear(sent)
            await asyncio.sleep(1)
            return wire

        served = await come(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        wires = [served, await come(POST), await come(), await come(b"GET /")]
        wires += [await come() for _ in range(3)]
        return [(wire.ended, wire.said) for wire in wires]

    *others, last = run(scene)
    assert others == [(None, b""), (4, b""), (5, b""), (6, b""), (None, b""), (None, b"")]
    assert last == (None, b"")


def test_who_comes_while_all_are_served_hears_why() -> None:
    async def scene() -> list[tuple[float | None, bytes]]:
        server = ServerState()
        wires = [Wire(bounded(2), Measuring(), keep_alive_seconds=KEEP_ALIVE_SECONDS, server=server) for _ in range(2)]
        for wire in wires:
            await wire.hear(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        wires.append(Wire(bounded(2), Measuring(), keep_alive_seconds=KEEP_ALIVE_SECONDS, server=server))
        await asyncio.sleep(1)
        wires.append(Wire(bounded(3), Measuring(), keep_alive_seconds=KEEP_ALIVE_SECONDS, server=server))
        await wires[-1].hear(GET)
        return [(wire.ended, wire.said[:12]) for wire in wires]

    assert run(scene) == [(None, b""), (None, b""), (0, b"HTTP/1.1 503"), (None, b"HTTP/1.1 200")]


def test_a_server_keeps_files_for_asking_the_gateway() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 0 < most_connections() <= max(soft // 2, 1) or soft == resource.RLIM_INFINITY


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", GET[:-2] + b"host: y\r\n\r\n"]
)
def test_what_is_no_request_is_refused(sent: bytes) -> None:
    async def scene() -> bytes:
        wire = connect()
        await wire.hear(sent)
        return wire.said

    assert run(scene).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("length", [b"content-length: 1000\r\n", b"transfer-encoding: chunked\r\n"])
def test_a_websocket_that_begins_with_a_body_keeps_no_place(length: bytes) -> None:
    async def scene() -> tuple[float | None, bytes]:
        wire = connect()
        await wire.hear(
            b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n" + length + b"\r\n"
        )
        return wire.ended, wire.said[:12]

    assert run(scene) == (0, b"HTTP/1.1 400")


@pytest.mark.parametrize("path", [b"/", b"/unread"])
def test_a_body_that_is_none_is_refused_once_and_fills_no_log(path: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> tuple[float | None, bytes]:
        wire = connect()
        wire.protocol.logger.addHandler(caplog.handler)  # passes nothing on
        await wire.hear(b"POST " + path + b" HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nnone\r\n")
        return wire.ended, wire.said

    ended, said = run(scene)
    logging.getLogger("uvicorn.error").removeHandler(caplog.handler)
    assert ended == 0
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1") == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
