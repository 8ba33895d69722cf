"""Which call gets which connection if there are more calls than connections."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from backends.errors import ConnectFailed
from backends.http.http1_connection import Http1Connection
from backends.http.kept_connections import Dial, Kept


class Wire(asyncio.Transport):
    """The transport of a connection on which nothing is sent."""

    def __init__(self, connection: Http1Connection) -> None:
        super().__init__()
        self.connection = connection

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)


class Provider:
    """Establishes connections when the test says so, in any order."""

    def __init__(self) -> None:
        self.kept = Kept(4.0)
        self.opened: set[Http1Connection] = set()
        self.dials: list[asyncio.Future[Http1Connection]] = []

    def call(self) -> asyncio.Task[Http1Connection]:
        return asyncio.create_task(self.kept.next(self._dial))

    def connected(self) -> Http1Connection:
        connection = Http1Connection("b", self.kept.give, self.opened)
        connection.connection_made(Wire(connection))
        return connection

    def idle(self) -> Http1Connection | None:
        return self.kept.take(asyncio.get_running_loop().time())

    async def _dial(self) -> Http1Connection:
        self.dials.append(asyncio.get_running_loop().create_future())
        return await self.dials[-1]


@asynccontextmanager
async def calls(count: int) -> AsyncGenerator[tuple[Provider, list[asyncio.Task[Http1Connection]]]]:
    """Starts this many calls, each with a dial in progress."""
    provider = Provider()
    made = [provider.call() for _ in range(count)]
    await turns()
    assert len(provider.dials) == count
    async with asyncio.timeout(600):
        yield provider, made
    for one in [*made, *provider.dials]:
        one.cancel()
    await asyncio.gather(*made, return_exceptions=True)
    await turns()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_freed_connection_goes_to_who_waits_longest_and_the_dialed_ones_to_the_others() -> None:
    async with calls(3) as (provider, (first, second, third)):
        freed, dialed, late = provider.connected(), provider.connected(), provider.connected()
        provider.kept.give(freed)
        assert await first is freed
        provider.dials[2].set_result(dialed)
        assert await second is dialed, "the third's dial, and the second's turn"
        assert not third.done()
        provider.dials[0].set_result(late)
        assert await third is late


async def test_what_was_dialed_for_who_has_another_by_now_is_kept_for_the_next() -> None:
    async with calls(1) as (provider, (only,)):
        provider.kept.give(provider.connected())
        await only
        spare = provider.connected()
        provider.dials[0].set_result(spare)
        await turns()
        assert provider.idle() is spare
        assert provider.idle() is None


async def test_a_dial_that_fails_is_told_when_none_is_left_for_somebody() -> None:
    async with calls(3) as (provider, (first, second, third)):
        provider.kept.give(provider.connected())
        await first
        provider.dials[0].set_exception(ConnectFailed("one"))
        await turns()
        assert not any(one.done() for one in (second, third)), "two are being dialed for two"
        provider.dials[2].set_exception(ConnectFailed("two"))
        with pytest.raises(ConnectFailed, match="two"):
            await second
        dialed = provider.connected()
        provider.dials[1].set_result(dialed)
        assert await third is dialed


async def test_who_leaves_in_the_moment_in_which_a_connection_comes_leaves_it_to_the_next() -> None:
    async with calls(2) as (provider, (leaving, staying)):
        freed = provider.connected()
        provider.kept.give(freed)
        leaving.cancel()
        assert await staying is freed
        assert leaving.cancelled()


async def test_who_left_is_passed_over() -> None:
    async with calls(2) as (provider, (leaving, staying)):
        leaving.cancel()
        freed = provider.connected()
        provider.kept.give(freed)
        assert await staying is freed


async def test_a_connection_whose_server_hung_up_behind_its_last_answer_is_nobodys() -> None:
    async with calls(1) as (provider, (only,)):
        dead, alive = provider.connected(), provider.connected()
        dead.is_used = True
        provider.kept.give(dead)
        dead.connection_lost(None)
        await turns()
        assert not only.done()
        provider.dials[0].set_result(alive)
        assert await only is alive


async def test_after_the_end_nothing_is_kept() -> None:
    async with calls(1) as (provider, (only,)):
        idle, dialed = provider.connected(), provider.connected()
        provider.kept.give(provider.connected())
        await only
        provider.kept.give(idle)
        provider.kept.close()
        assert idle.is_closed
        provider.dials[0].set_result(dialed)
        await turns()
        assert dialed.is_closed


@pytest.mark.parametrize("age", [3.0, 5.0])
async def test_an_idle_one_is_taken_while_it_is_young(age: float) -> None:
    provider = Provider()
    connection = provider.connected()
    provider.kept.give(connection)
    at = connection.idle_since + age
    assert (provider.kept.take(at) is connection) == (age < 4.0)
    assert connection.is_closed == (age > 4.0)


async def test_nobody_is_left_behind_whatever_the_order() -> None:
    """Each of many calls uses its connection for a moment and releases it; every third dial eventually fails."""
    provider, served, refused = Provider(), 0, 0

    async def call(number: int) -> None:
        nonlocal served, refused
        try:
            connection = await provider.kept.next(provider_dial(number))
        except ConnectFailed:
            refused += 1
            return
        await asyncio.sleep(0)
        served += 1
        provider.kept.give(connection)

    def provider_dial(number: int) -> Dial:
        async def dial() -> Http1Connection:
            for _ in range(number * 7919 % 13):
                await asyncio.sleep(0)
            if number % 3 == 0:
                raise ConnectFailed("no")
            return provider.connected()

        return dial

    async with asyncio.timeout(600):
        await asyncio.gather(*(call(number) for number in range(300)))
    await turns()
    assert served + refused == 300
    assert refused <= 100
    left = 0
    while provider.idle() is not None:
        left += 1
    assert left == 200, "each that was dialed, once"
