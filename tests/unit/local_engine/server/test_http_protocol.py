import asyncio

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from local_engine.server.http_protocol import (
    HEAD_TOO_LONG,
    HEAD_TOO_SLOW,
    NO_REQUEST,
    PATIENCE_SECONDS,
    BoundedProtocol,
)
from tests.virtual_time import now, run
from tests.virtual_wire import Wire, drip

POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


class Measuring:
    """Says how long a body was, an hour after it came where the path is /slow; `left` is who went before that."""

    def __init__(self) -> None:
        self.left = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await Request(scope, receive).body()
        except ClientDisconnect:
            self.left += 1
            return
        if scope["path"] == "/slow":
            await asyncio.sleep(3600)
        await Response(f"{len(body)};", headers={"content-length": str(len(f"{len(body)};"))})(scope, receive, send)


def connect(app: Measuring | None = None) -> Wire:
    return Wire(BoundedProtocol, app or Measuring(), keep_alive_seconds=5)


@pytest.mark.parametrize(
    ("begun", "piece", "last_words"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\nx-slow: ", b"a", HEAD_TOO_SLOW),
        (POST, b"a", b""),
        (CHUNKED, b"1\r\na\r\n", b""),
        (CHUNKED + b"1\r\na\r\n0\r\nx-slow: ", b"a", b""),
        (b"\r\n", b"\r\n", b""),
    ],
)
def test_what_drips_in_is_not_waited_for(begun: bytes, piece: bytes, last_words: bytes) -> None:
    async def scene() -> tuple[float, bytes]:
        wire = connect()
        await wire.hear(begun)
        return await drip(wire, piece), wire.said

    ended, said = run(scene)
    assert PATIENCE_SECONDS <= ended <= PATIENCE_SECONDS + 20
    assert said == last_words


def test_a_slow_upload_lives_while_it_moves_and_its_connection_serves_on() -> None:
    async def scene() -> tuple[float, bytes]:
        wire = connect()
        await wire.hear(POST)
        for _ in range(100):
            await asyncio.sleep(15)
            await wire.hear(b"x" * 10_000)
        await wire.hear(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.sleep(3600)
        assert wire.ended is not None
        return wire.ended, wire.said

    ended, said = run(scene)
    assert ended == 1505, "of keeping it alive, and of nothing else"
    assert [part.rpartition(b"\r\n")[2] for part in said.split(b";")] == [b"1000000", b"0", b""]


def test_an_endpoint_hears_that_a_body_will_not_come() -> None:
    async def scene() -> int:
        app = Measuring()
        wire = connect(app)
        await wire.hear(POST + b"half")
        await asyncio.sleep(2 * PATIENCE_SECONDS)
        return app.left

    assert run(scene) == 1


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


def test_who_does_not_take_an_answer_is_dropped_and_who_does_is_not() -> None:
    async def scene() -> tuple[float | None, float | None]:
        slow, stuck = connect(), connect()
        for wire in (slow, stuck):
            await wire.hear(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
            wire.protocol.pause_writing()
        await asyncio.sleep(PATIENCE_SECONDS - 1)
        slow.protocol.resume_writing()
        await asyncio.sleep(10)
        assert now() > PATIENCE_SECONDS
        return slow.ended, stuck.ended

    assert run(scene) == (None, PATIENCE_SECONDS)


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


@pytest.mark.parametrize("begun", [GET, CHUNKED])
def test_no_request_is_not_told_in_the_middle_of_an_answer(begun: bytes) -> None:
    async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await asyncio.sleep(3600)

    async def scene() -> tuple[bytes, float | None]:
        wire = Wire(BoundedProtocol, streaming, keep_alive_seconds=5)
        await wire.hear(begun)
        await wire.hear(b"no request\r\n\r\n")
        return wire.said.rpartition(b"\r\n\r\n")[2], wire.ended

    assert run(scene) == (b"3\r\none\r\n", 0)
