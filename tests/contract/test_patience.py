"""Timeouts of connections that the servers of the web UI and of the engine share, in virtual time."""

import asyncio

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dashboards import http_protocol as dashboards
from local_engine.server import http_protocol as engine
from tests.virtual_time import run
from tests.virtual_wire import Measuring, Wire, drip

Protocol = type[H11Protocol | HttpToolsProtocol]
PATIENCE_SECONDS = 60.0
KEEP_ALIVE_SECONDS = 5
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
TOO_SLOW: dict[Protocol, bytes] = {
    dashboards.BoundedProtocol: dashboards.TOO_SLOW,
    engine.BoundedProtocol: engine.HEAD_TOO_SLOW,
}
pytestmark = pytest.mark.parametrize("protocol", TOO_SLOW, ids=["web UI", "engine"])


def connect(protocol: Protocol, app: Measuring | None = None) -> Wire:
    return Wire(protocol, app or Measuring(), keep_alive_seconds=KEEP_ALIVE_SECONDS)


def test_both_are_as_patient(protocol: Protocol) -> None:
    assert dashboards.PATIENCE_SECONDS == engine.PATIENCE_SECONDS == PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("begun", "piece", "is_told"),
    [
        (b"GET /", b"a", True),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx-slow: ", b"a", True),
        (POST, b"a", False),
        (CHUNKED, b"1\r\na\r\n", False),
        (CHUNKED + b"1\r\na\r\n0\r\nx-slow: ", b"a", False),
    ],
)
def test_what_drips_in_is_not_waited_for(protocol: Protocol, begun: bytes, piece: bytes, is_told: bool) -> None:
    async def scene() -> tuple[float, bytes]:
        wire = connect(protocol)
        await wire.hear(begun)
        return await drip(wire, piece), wire.said

    ended, said = run(scene)
    assert PATIENCE_SECONDS <= ended <= PATIENCE_SECONDS + 10
    assert said == (TOO_SLOW[protocol] if is_told else b"")


def test_a_slow_upload_lives_while_it_moves_and_its_connection_serves_on(protocol: Protocol) -> None:
    async def scene() -> tuple[float | None, bytes]:
        wire = connect(protocol)
        await wire.hear(POST)
        for _ in range(100):
            await asyncio.sleep(15)
            await wire.hear(b"x" * 10_000)
        await wire.hear(GET)
        await asyncio.sleep(3600)
        return wire.ended, wire.said

    ended, said = run(scene)
    assert ended == 1500 + KEEP_ALIVE_SECONDS, "of keeping it alive, and of nothing else"
    assert [part.rpartition(b"\r\n")[2] for part in said.split(b";")] == [b"1000000", b"0", b""]


def test_who_waits_for_a_body_hears_that_it_will_not_come(protocol: Protocol) -> None:
    async def scene() -> int:
        app = Measuring()
        await connect(protocol, app).hear(POST + b"half")
        await asyncio.sleep(2 * PATIENCE_SECONDS)
        return app.left

    assert run(scene) == 1


def test_who_does_not_take_an_answer_is_dropped_and_who_does_is_not(protocol: Protocol) -> None:
    async def scene() -> tuple[float | None, float | None]:
        slow, stuck = connect(protocol), connect(protocol)
        for wire in (slow, stuck):
            await wire.hear(SLOW)
            wire.protocol.pause_writing()
        await asyncio.sleep(PATIENCE_SECONDS - 1)
        slow.protocol.resume_writing()
        await asyncio.sleep(10)
        return slow.ended, stuck.ended

    assert run(scene) == (None, PATIENCE_SECONDS)


@pytest.mark.parametrize("behind", [b"no request\r\n\r\n", b"five\r\n"])
@pytest.mark.parametrize("begun", [GET, CHUNKED])
def test_no_request_is_not_told_in_the_middle_of_an_answer(protocol: Protocol, begun: bytes, behind: bytes) -> None:
    async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await asyncio.sleep(3600)

    async def scene() -> tuple[bytes, float | None]:
        wire = Wire(protocol, streaming, keep_alive_seconds=KEEP_ALIVE_SECONDS)
        await wire.hear(begun)
        await wire.hear(behind)
        return wire.said.rpartition(b"\r\n\r\n")[2], wire.ended

    # h11 reads what follows a whole request only after the answer.
    is_read_later = protocol is dashboards.BoundedProtocol and begun == GET
    assert run(scene) == (b"3\r\none\r\n", None if is_read_later else 0)
