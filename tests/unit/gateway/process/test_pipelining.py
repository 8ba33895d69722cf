"""Pipelined requests: they are answered in order, and their number is bounded."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.process.patient_protocol import MOST_PIPELINED, patient_protocol
from gateway.process.server import KEEP_ALIVE_SECONDS
from tests.virtual_time import run
from tests.virtual_wire import Wire

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class Gate(Wire):
    """A transport that records whether reading is paused."""

    is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


class Slow:
    """An application that answers with the body's length, a second after the body arrived."""

    def __init__(self) -> None:
        self.began = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.began += 1
        body = await Request(scope, receive).body()
        await asyncio.sleep(1)
        await Response(f"{len(body)};", headers={"content-length": "2"})(scope, receive, send)


def connect(app: Slow) -> Gate:
    return Gate(patient_protocol(60.0, most=9), app, keep_alive_seconds=KEEP_ALIVE_SECONDS)


def test_nothing_more_is_read_until_the_last_that_waits_is_served() -> None:
    """Each answer used to let in thousands of requests, as many as one read holds, and a stranger could fill
    gigabytes."""

    async def scene() -> list[bool]:
        app = Slow()
        wire = connect(app)
        await wire.hear(GET * 4)
        await asyncio.sleep(0.5)
        seen: list[bool] = []
        for _ in range(5):
            seen.append(wire.is_read)
            await asyncio.sleep(1)
        assert wire.said.count(b"0;") == app.began == 4
        return seen

    assert run(scene) == [False, False, False, True, True]


def test_the_body_of_one_that_waited_is_read_when_its_turn_comes() -> None:
    async def scene() -> tuple[bool, bytes]:
        wire = connect(Slow())
        await wire.hear(GET + b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab")
        await asyncio.sleep(1.5)
        is_read = wire.is_read
        await wire.hear(b"cde" + GET)
        await asyncio.sleep(3)
        return is_read, wire.said

    is_read, said = run(scene)
    assert is_read
    assert [part.rpartition(b"\r\n")[2] for part in said.split(b";")] == [b"0", b"5", b"0", b""]


def test_as_many_as_are_borne_are_answered_and_one_more_ends_the_connection() -> None:
    async def scene(count: int) -> tuple[float | None, int]:
        app = Slow()
        wire = connect(app)
        await wire.hear(GET * count)
        await asyncio.sleep(MOST_PIPELINED + 2)
        return wire.ended, wire.said.count(b"0;")

    assert run(lambda: scene(MOST_PIPELINED + 1)) == (None, MOST_PIPELINED + 1)
    assert run(lambda: scene(MOST_PIPELINED + 2)) == (0, 0)
    assert run(lambda: scene(10_000)) == (0, 0)
