"""The contract of all stores of kept responses and conversations."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import cast

import pytest

from gateway.errors import InvalidRequest, NotFound, StoreDown
from gateway.kept_answers.kept_conversations import KeptConversations
from gateway.kept_answers.kept_turns import TurnStore
from gateway.kept_answers.memory_turns import OVERHEAD_BYTES, MemoryTurns
from gateway.kept_answers.record_store import Change, RecordStore
from gateway.storage.redis.client import connect_bytes
from gateway.storage.redis.turns import CONVERSATIONS, LOCKS, PREFIX, RedisTurns
from gateway.storage.turns.disk_turns import DiskTurns
from gateway.storage.turns.turn_file import TurnFile
from tests.hand_clock import HandClock
from tests.ports import free_port
from tests.redis_server import PATIENCE_SECONDS, SERVERS, Reached, RedisServer

NAME = "f" * 64
LARGE = 100_000


@pytest.fixture(params=["memory", "disk", "disk without memory", "redis", "redis cluster"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[TurnStore]:
    if request.param == "memory":
        yield MemoryTurns()
        return
    if request.param.startswith("disk"):
        file = TurnFile(tmp_path / "turns.db", max_bytes=1 << 20, longest_seconds=60)
        disk = DiskTurns(file, memory_bytes=(1 << 20) * (request.param == "disk"), patience_seconds=60)
        yield disk
        await disk.aclose()
        return
    server = cast(Reached, request.getfixturevalue(SERVERS[request.param]))
    async with connect_bytes(server.url) as client:
        yield RedisTurns(client, patience_seconds=PATIENCE_SECONDS)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(params=["memory", "disk"])
async def clocked(request: pytest.FixtureRequest, clock: HandClock, tmp_path: Path) -> AsyncGenerator[TurnStore]:
    """A small store whose clock is set by the test."""
    if request.param == "memory":
        yield MemoryTurns(max_bytes=3 * (OVERHEAD_BYTES + LARGE), monotonic=clock)
        return
    # The file needs about 40 KB for its tables, and reserves as much for another turn.
    file = TurnFile(tmp_path / "turns.db", max_bytes=4 * LARGE, longest_seconds=60, now=clock, unstepped=clock)
    disk = DiskTurns(file, memory_bytes=0, patience_seconds=60)
    yield disk
    await disk.aclose()


async def test_what_is_put_is_there_until_it_is_deleted(store: TurnStore) -> None:
    assert await store.get(NAME, 60) is None
    assert not await store.delete(NAME)
    await store.put(NAME, b"\0\xff", 60)
    await store.put(NAME, b"\0\xfe", 60)
    assert await store.get(NAME, 60) == b"\0\xfe"
    assert await store.get(NAME, 60) == b"\0\xfe"
    assert await store.delete(NAME)
    assert not await store.delete(NAME)
    assert await store.get(NAME, 60) is None


async def test_large_and_empty_ones_come_back_as_they_were(store: TurnStore) -> None:
    values = {"a": b"", "b": bytes(range(256)) * 1000, "c": b"x" * 4096}
    for name, value in values.items():
        await store.put(name, value, 60)
    assert {name: await store.get(name, 60) for name in values} == values


async def test_it_forgets_after_the_time_that_the_last_reader_gave(clocked: TurnStore, clock: HandClock) -> None:
    await clocked.put(NAME, b"turn", 60)
    clock.now += 59
    assert await clocked.get(NAME, 60) == b"turn"
    clock.now += 59
    assert await clocked.get(NAME, 60) == b"turn"
    clock.now += 61
    assert await clocked.get(NAME, 60) is None


async def test_it_is_bounded_and_the_least_recently_read_goes_first(clocked: TurnStore, clock: HandClock) -> None:
    turn = b"x" * LARGE
    for name in "abc":
        await clocked.put(name, turn, 60)
        clock.now += 1
    assert await clocked.get("a", 60)
    await clocked.put("d", turn, 60)
    assert [await clocked.get(name, 60) for name in "abcd"] == [turn, None, turn, turn]
    await clocked.put("e", 8 * turn, 60)
    assert await clocked.get("e", 60) is None, "larger than all that there is room for"


async def test_an_owner_who_has_much_makes_room_with_its_own(clocked: TurnStore, clock: HandClock) -> None:
    turn = b"x" * LARGE
    for name, owner in {"b": "blue", "1": "red", "2": "red", "3": "red", "4": "red"}.items():
        await clocked.put(name, turn, 60, owner=owner)
        clock.now += 1
    assert [await clocked.get(name, 60) for name in "b1234"] == [turn, None, None, turn, turn]
    await clocked.put("5", turn, 60, owner="green")
    assert [await clocked.get(name, 60) for name in "b345"] == [None, turn, turn, turn], (
        "whoever has little, of anybody"
    )
    await clocked.put("6", 8 * turn, 60, owner="red")
    assert [await clocked.get(name, 60) for name in "3456"] == [turn, turn, turn, None], "what has no room costs none"


async def test_redis_forgets_by_itself_and_a_reader_gives_more_time(redis_server: RedisServer) -> None:
    async with connect_bytes(redis_server.url) as client:
        store = RedisTurns(client, patience_seconds=PATIENCE_SECONDS)
        await store.put(NAME, b"turn", 60)
        assert 0 < await client.pttl(PREFIX + NAME) <= 60_000
        await store.get(NAME, 600)
        assert 60_000 < await client.pttl(PREFIX + NAME) <= 600_000


async def test_a_dead_workers_lock_in_redis_ends_though_its_clock_was_put_back(redis_server: RedisServer) -> None:
    async with connect_bytes(redis_server.url) as client:
        locks = RedisTurns(client, prefix=LOCKS, patience_seconds=PATIENCE_SECONDS)
        assert await locks.swap(Change(NAME, None, b"dead"), 30)
        await client.expire(LOCKS + NAME, 86_400)
        assert not await locks.swap(Change(NAME, None, b"next"), 30)
        assert 0 < await client.pttl(LOCKS + NAME) <= 30_000


async def test_in_a_full_redis_who_keeps_much_makes_room_with_its_own(redis_server: RedisServer) -> None:
    """And with what it has not used for longest: a few large answers of one key pushed out those of all others."""
    async with connect_bytes(redis_server.url) as client:
        store = RedisTurns(client, patience_seconds=PATIENCE_SECONDS)
        used = int((await client.info("memory"))["used_memory"])
        await client.config_set("maxmemory-policy", "volatile-lru")
        await client.config_set("maxmemory", used + 40 * LARGE)
        try:
            await store.put("hers", b"x", 600, owner="ann")
            for number in range(100):
                await store.put(f"{number}", bytes(LARGE), 600, owner="bob")
            assert await store.get("hers", None) == b"x"
            kept = [number for number in range(100) if await store.get(f"{number}", None)]
            assert 20 < len(kept) < 40
            assert kept == list(range(100 - len(kept), 100)), "the oldest went"
            await store.get(f"{kept[0]}", 3600)
            assert await store.swap(Change("head", None, b"1", beside={"a": bytes(LARGE)}, owner="bob"), 600)
            assert await store.get(f"{kept[0]}", None), "used since"
            assert not await store.get(f"{kept[1]}", None)
            shared = await client.zcard(f"breakeven:shares:{PREFIX}bob")
            assert await store.swap(Change("head", b"1", b"2", gone=["a"], owner="bob"), 600)
            assert await client.zcard(f"breakeven:shares:{PREFIX}bob") == shared - 1
            assert await store.delete(f"{kept[0]}", owner="bob")
            assert await client.zcard(f"breakeven:shares:{PREFIX}bob") == shared - 2
        finally:
            await client.config_set("maxmemory", 0)
            await client.config_set("maxmemory-policy", "noeviction")


async def test_redis_that_is_not_there_is_told_as_that() -> None:
    async with connect_bytes(f"redis://127.0.0.1:{free_port()}/0") as client:
        store = RedisTurns(client)
        swapping = store.swap(Change(NAME, None, b""), 60)
        for asking in (store.get(NAME, 60), store.put(NAME, b"", 60), store.delete(NAME), swapping):
            with pytest.raises(StoreDown):
                await asking


async def test_several_records_change_in_one_step_or_none_does(store: RecordStore) -> None:
    async def kept() -> list[bytes | None]:
        return [await store.get(name, None) for name in ("head", "a", "b", "c")]

    assert await store.swap(Change("head", None, b"1", beside={"a": b"\0a", "b": b""}), 60)
    assert await kept() == [b"1", b"\0a", b"", None]
    for was in (None, b"", b"2"):
        assert not await store.swap(Change("head", was, b"3", beside={"c": b"c"}, gone=["a"]), 60)
    assert await kept() == [b"1", b"\0a", b"", None]
    assert await store.swap(Change("head", b"1", b"", beside={"c": b"c"}, gone=["a"], renewed=["b"], erases=True), 60)
    assert await kept() == [b"", None, b"", b"c"]
    assert not await store.swap(Change("head", None, b"3"), 60), "an empty one is one too"
    assert await store.swap(Change("head", b"", None, gone=["b", "c", "never"], erases=True), 60)
    assert await kept() == [None] * 4
    assert not await store.swap(Change("head", b"", None), 60)


async def test_of_many_who_change_one_at_once_each_is_told_whether_it_was_the_first(store: RecordStore) -> None:
    async def add() -> None:
        while True:
            was = await store.get("head", 60)
            count = int(was or b"0") + 1
            if await store.swap(Change("head", was, b"%d" % count, beside={f"piece {count}": b"x"}), 60):
                return

    await asyncio.gather(*(add() for _ in range(20)))
    assert await store.get("head", None) == b"20"
    assert [await store.get(f"piece {one + 1}", None) for one in range(20)] == [b"x"] * 20


async def test_what_belongs_together_gets_its_time_anew_together(clocked: RecordStore, clock: HandClock) -> None:
    assert await clocked.swap(Change("head", None, b"1", beside={"a": b"a", "b": b"b"}), 60)
    clock.now += 40
    assert await clocked.get("a", None) == b"a"
    assert await clocked.swap(Change("head", b"1", b"2", renewed=["a"]), 60)
    clock.now += 40
    assert [await clocked.get(name, None) for name in ("head", "a", "b")] == [b"2", b"a", None]
    assert await clocked.swap(Change("b", None, b"anew"), 60), "what is over is none"
    clock.now += 30
    assert not await clocked.swap(Change("head", b"2", b"3"), 60)
    assert await clocked.get("head", None) is None


async def test_redis_gives_all_of_them_the_same_time(redis_server: RedisServer) -> None:
    async with connect_bytes(redis_server.url) as client:
        store = RedisTurns(client, patience_seconds=PATIENCE_SECONDS)
        await store.swap(Change("head", None, b"1", beside={"a": b"a", "b": b"b"}), 60)
        await store.swap(Change("head", b"1", b"2", beside={"b": b"c"}, renewed=["a", "never"]), 600)
        lasting = [await client.pttl(PREFIX + name) for name in ("head", "a", "b")]
        assert all(60_000 < one <= 600_000 for one in lasting)
        assert await client.pttl(PREFIX + "never") == -2


async def test_through_redis_every_worker_has_the_same_conversations_one_turn_at_a_time(
    redis_server: RedisServer,
) -> None:
    async with connect_bytes(redis_server.url) as one, connect_bytes(redis_server.url) as two:
        here, there = (
            KeptConversations(
                RedisTurns(client, prefix=CONVERSATIONS, patience_seconds=PATIENCE_SECONDS),
                RedisTurns(client, prefix=LOCKS, patience_seconds=PATIENCE_SECONDS),
                lambda tenant: tenant.encode().ljust(32),
            )
            for client in (one, two)
        )
        name, _ = await here.create("red", b'[{"role":"user","content":"hi"}]', {})
        async with there.turn("red", name) as belonging:
            assert belonging.items == b'[{"role":"user","content":"hi"}]'
            with pytest.raises(InvalidRequest, match="Another request is using"):
                await here.turn("red", name).__aenter__()
            assert await there.append(belonging, [b'{"role":"assistant","content":"hello"}'])
        async with here.turn("red", name) as belonging:
            assert belonging.items == b'[{"role":"user","content":"hi"},{"role":"assistant","content":"hello"}]'
        await here.delete("red", name)
        with pytest.raises(NotFound):
            await there.find("red", name)
        assert not [key async for key in one.scan_iter("breakeven:conversation*")]
