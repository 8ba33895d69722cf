"""What a connection is given time for; in virtual time, so the transport is a list of what was written."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from gateway.process.server import HEAD_TOO_SLOW, KEEP_ALIVE_SECONDS, patient_protocol
from tests.virtual_time import now, run

PATIENCE = 60.0
ANSWERED = b"HTTP/1.1 204 No Content\r\n\r\n"


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """At once: the body, if there is one, is nobody's."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class Wire(asyncio.Transport):
    """Where the protocol writes; `ended` is the second at which it closed."""

    def __init__(self) -> None:
        super().__init__()
        self.said = b""
        self.ended: float | None = None
        self.protocol: HttpToolsProtocol = patient_protocol(PATIENCE, most=9)(
            uvicorn.Config(answer, lifespan="off", timeout_keep_alive=KEEP_ALIVE_SECONDS), ServerState(), {}
        )
        self.protocol.connection_made(self)

    async def hear(self, data: bytes) -> None:
        """Some bytes of the client's, and all that follows from them at once."""
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

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


async def drip(wire: Wire, piece: bytes) -> float:
    """A piece every ten seconds, for an hour or until the connection is closed; the second of that."""
    for _ in range(360):
        if wire.ended is not None:
            break
        await asyncio.sleep(10)
        await wire.hear(piece)
    assert wire.ended is not None, "for ever"
    return wire.ended


Scene = Callable[[], Coroutine[Any, Any, tuple[float, bytes]]]


def scene(begun: bytes, piece: bytes) -> Scene:
    async def play() -> tuple[float, bytes]:
        wire = Wire()
        await asyncio.sleep(30)
        await wire.hear(begun)
        return await drip(wire, piece), wire.said

    return play


@pytest.mark.parametrize("begun", [b"GET /", b"GET / HTTP/1.1\r\nhost: x\r\nx-slow: "])
def test_half_a_head_is_not_waited_for_longer_because_it_comes_slowly(begun: bytes) -> None:
    assert run(scene(begun, b"a")) == (30 + PATIENCE, HEAD_TOO_SLOW)


def test_empty_lines_before_a_head_earn_no_time_either() -> None:
    assert run(scene(b"\r\n", b"\r\n")) == (30 + PATIENCE, b"")


def test_a_second_head_has_its_own_time() -> None:
    first = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
    assert run(scene(first + b"GET /", b"a")) == (30 + 10 + PATIENCE, ANSWERED + HEAD_TOO_SLOW)


def test_a_body_whose_answer_is_out_is_not_taken_for_ever_and_hears_no_second_answer() -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
    assert run(scene(head, b"a")) == (30 + 10 + PATIENCE, ANSWERED)


def test_who_says_nothing_is_let_go_without_a_word() -> None:
    async def play() -> tuple[float | None, bytes]:
        wire = Wire()
        await asyncio.sleep(3600)
        return wire.ended, wire.said

    assert run(play) == (KEEP_ALIVE_SECONDS, b"")


def test_a_head_that_comes_in_time_is_answered_and_leaves_no_timer_behind() -> None:
    async def play() -> tuple[float | None, bytes]:
        wire = Wire()
        for _ in range(3):
            for piece in (b"GET / HT", b"TP/1.1\r\nho", b"st: x\r\n\r\n"):
                await asyncio.sleep(25)
                await wire.hear(piece)
            await asyncio.sleep(45)
        await asyncio.sleep(3600)
        return wire.ended, wire.said

    assert run(play) == (3 * 75 + 2 * 45 + KEEP_ALIVE_SECONDS, ANSWERED * 3)
