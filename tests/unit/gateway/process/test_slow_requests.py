"""How long a connection may take for each step; in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from gateway.process.no_requests import HEAD_TOO_SLOW
from gateway.process.patient_protocol import patient_protocol
from gateway.process.server import KEEP_ALIVE_SECONDS
from tests.virtual_time import run
from tests.virtual_wire import Wire, drip

PATIENCE = 60.0
ANSWERED = b"HTTP/1.1 204 No Content\r\n\r\n"


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once, without reading a body."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def connect() -> Wire:
    return Wire(patient_protocol(PATIENCE, most=9), answer, keep_alive_seconds=KEEP_ALIVE_SECONDS)


Scene = Callable[[], Coroutine[Any, Any, tuple[float, bytes]]]


def scene(begun: bytes, piece: bytes) -> Scene:
    async def play() -> tuple[float, bytes]:
        wire = connect()
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


def test_a_refusal_that_lets_a_body_stay_unsent_ends_the_connection() -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n"
    closing = ANSWERED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    assert run(scene(head, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")) == (30, closing)


def test_who_says_nothing_is_let_go_without_a_word() -> None:
    async def play() -> tuple[float | None, bytes]:
        wire = connect()
        await asyncio.sleep(3600)
        return wire.ended, wire.said

    assert run(play) == (KEEP_ALIVE_SECONDS, b"")


def test_a_head_that_comes_in_time_is_answered_and_leaves_no_timer_behind() -> None:
    async def play() -> tuple[float | None, bytes]:
        wire = connect()
        for _ in range(3):
            for piece in (b"GET / HT", b"TP/1.1\r\nho", b"st: x\r\n\r\n"):
                await asyncio.sleep(25)
                await wire.hear(piece)
            await asyncio.sleep(45)
        await asyncio.sleep(3600)
        return wire.ended, wire.said

    assert run(play) == (3 * 75 + 2 * 45 + KEEP_ALIVE_SECONDS, ANSWERED * 3)


def test_an_answer_may_take_longer_than_a_silence_may_which_begins_with_its_end() -> None:
    async def slowly(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(3 * KEEP_ALIVE_SECONDS + 1)
        await answer(scope, receive, send)

    async def play() -> tuple[float | None, bytes]:
        wire = Wire(patient_protocol(PATIENCE, most=9), slowly, keep_alive_seconds=KEEP_ALIVE_SECONDS)
        await asyncio.sleep(10)
        await wire.hear(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.sleep(3600)
        return wire.ended, wire.said

    assert run(play) == (10 + 4 * KEEP_ALIVE_SECONDS + 1, ANSWERED)


def test_requests_on_one_connection_share_a_timer() -> None:
    async def play() -> int:
        wire = connect()
        timers = 0
        call_at = asyncio.get_running_loop().call_at

        def counted(*arguments: Any, **named: Any) -> asyncio.TimerHandle:
            nonlocal timers
            timers += 1
            return call_at(*arguments, **named)

        asyncio.get_running_loop().call_at = counted  # pyright: ignore[reportAttributeAccessIssue]
        for _ in range(100):
            await wire.hear(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        return timers

    assert run(play) == 0
