"""What every store of kept responses must do."""

from collections.abc import AsyncGenerator
from typing import cast

import pytest

from gateway.errors import StoreDown
from gateway.kept_answers.conversations import TurnStore
from gateway.kept_answers.memory_turns import OVERHEAD_BYTES, MemoryTurns
from gateway.storage.redis.bytes import connect_bytes
from gateway.storage.redis.turns import PREFIX, RedisTurns
from tests.hand_clock import HandClock
from tests.ports import free_port
from tests.redis_server import PATIENCE_SECONDS, RedisServer

NAME = "f" * 64


@pytest.fixture(params=["memory", "redis"])
async def store(request: pytest.FixtureRequest) -> AsyncGenerator[TurnStore]:
    if request.param == "memory":
        yield MemoryTurns()
        return
    server = cast(RedisServer, request.getfixturevalue("redis_server"))
    async with connect_bytes(server.url) as client:
        yield RedisTurns(client, patience_seconds=PATIENCE_SECONDS)


async def test_what_is_put_is_there_until_it_is_deleted(store: TurnStore) -> None:
    assert await store.get(NAME, 60) is None
    assert not await store.delete(NAME)
    await store.put(NAME, b"\0\xff", 60)
    await store.put(NAME, b"\0\xfe", 60)
    assert await store.get(NAME, 60) == b"\0\xfe"
    assert await store.get(NAME, 60) == b"\0\xfe"
    assert await store.delete(NAME)
    assert await store.get(NAME, 60) is None


async def test_memory_forgets_after_the_time_that_the_last_reader_gave() -> None:
    clock = HandClock()
    store = MemoryTurns(monotonic=clock)
    await store.put(NAME, b"turn", 60)
    clock.now += 59
    assert await store.get(NAME, 60) == b"turn"
    clock.now += 59
    assert await store.get(NAME, 60) == b"turn"
    clock.now += 61
    assert await store.get(NAME, 60) is None


async def test_memory_is_bounded_and_the_least_recently_read_goes_first() -> None:
    store = MemoryTurns(max_bytes=3 * (OVERHEAD_BYTES + 4))
    for name in "abc":
        await store.put(name, b"turn", 60)
    assert await store.get("a", 60)
    await store.put("d", b"turn", 60)
    assert [await store.get(name, 60) for name in "abcd"] == [b"turn", None, b"turn", b"turn"]
    await store.put("e", b"x" * 4000, 60)
    assert await store.get("e", 60) is None, "larger than all that there is room for"


async def test_redis_forgets_by_itself_and_a_reader_gives_more_time(redis_server: RedisServer) -> None:
    async with connect_bytes(redis_server.url) as client:
        store = RedisTurns(client, patience_seconds=PATIENCE_SECONDS)
        await store.put(NAME, b"turn", 60)
        assert 0 < await client.pttl(PREFIX + NAME) <= 60_000
        await store.get(NAME, 600)
        assert 60_000 < await client.pttl(PREFIX + NAME) <= 600_000


async def test_redis_that_is_not_there_is_told_as_that() -> None:
    async with connect_bytes(f"redis://127.0.0.1:{free_port()}/0") as client:
        store = RedisTurns(client)
        for asking in (store.get(NAME, 60), store.put(NAME, b"", 60), store.delete(NAME)):
            with pytest.raises(StoreDown):
                await asking
