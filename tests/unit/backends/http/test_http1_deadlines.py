"""Deadlines on a reused connection, in virtual time: each exchange has its own, whatever earlier ones on the connection
had."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from backends.errors import UpstreamTimeout
from backends.http.http1_connection import Http1Connection
from tests.virtual_time import now, run

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Wire(asyncio.Transport):
    """Discards what is sent."""

    def __init__(self, connection: Http1Connection) -> None:
        super().__init__()
        self._connection = connection
        connection.connection_made(self)

    def write(self, data: Any) -> None:
        del data

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)


def connected() -> Http1Connection:
    connection = Http1Connection("b", lambda _: None, set())
    Wire(connection)
    return connection


async def ask(connection: Http1Connection, *, patience: float, answer_after: float | None = None) -> None:
    if answer_after is not None:
        asyncio.get_running_loop().call_later(answer_after, connection.data_received, OK)
    answer = await connection.exchange(b"GET / HTTP/1.1\r\n\r\n", None, now() + patience)
    assert await answer.read() == b"ok"
    assert not connection.is_closed


def given_up_at(talk: Callable[[Http1Connection], Coroutine[Any, Any, None]]) -> float:
    """The second at which the last exchange, and with it the connection, was given up."""

    async def talked() -> float:
        connection = connected()
        with pytest.raises(UpstreamTimeout):
            await talk(connection)
        assert connection.is_closed
        return now()

    return run(talked)


def test_a_silent_upstream_is_given_up_in_time() -> None:
    assert given_up_at(lambda one: ask(one, patience=5)) == pytest.approx(5)


def test_a_shorter_patience_after_a_longer_one_counts() -> None:
    async def talk(one: Http1Connection) -> None:
        await ask(one, patience=600, answer_after=1)
        await ask(one, patience=5)

    assert given_up_at(talk) == pytest.approx(6)


def test_a_longer_patience_is_not_cut_by_the_time_of_the_exchange_before() -> None:
    async def talk(one: Http1Connection) -> None:
        await ask(one, patience=5, answer_after=1)
        await ask(one, patience=60, answer_after=30)
        await ask(one, patience=60)

    assert given_up_at(talk) == pytest.approx(91)


def test_after_a_time_in_which_nobody_asked_the_next_is_still_given_up() -> None:
    async def talk(one: Http1Connection) -> None:
        await ask(one, patience=5, answer_after=1)
        await asyncio.sleep(20)
        await ask(one, patience=5)

    assert given_up_at(talk) == pytest.approx(26)
