"""Concurrent requests as counted by all Counters; for the shared implementation also with a crash and a flush."""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import Any, cast

import pytest

from gateway.limits.counters import Counters, Places
from gateway.storage.redis.counters import PREFIX, connect
from gateway.storage.redis.places import ENTER, RENEW
from tests.contract.redis_counters import PATIENCE_SECONDS, Pair, shared
from tests.redis_server import RedisServer

pytestmark = pytest.mark.integration
KEYS_TWO, TEAMS_THREE = Places("key:k", 2), Places("team:red", 3)


async def leave(counters: Counters, name: str) -> None:
    if (told := counters.leave(name)) is not None:
        await told


async def test_so_many_are_under_way_and_no_more_until_one_leaves(counters: Counters) -> None:
    assert await counters.enter("a", [KEYS_TWO]) is None
    assert await counters.enter("b", [KEYS_TWO]) is None
    assert await counters.enter("c", [KEYS_TWO]) == KEYS_TWO
    await leave(counters, "a")
    assert await counters.enter("c", [KEYS_TWO]) is None
    assert await counters.enter("d", [KEYS_TWO]) == KEYS_TWO


async def test_a_place_that_is_not_there_takes_none_elsewhere(counters: Counters) -> None:
    """A key that is at its limit takes no place from its team."""
    for name in ("a", "b"):
        assert await counters.enter(name, [KEYS_TWO, TEAMS_THREE]) is None
    for name in ("c", "d", "e"):
        assert await counters.enter(name, [KEYS_TWO, TEAMS_THREE]) == KEYS_TWO
    assert await counters.enter("f", [Places("key:other", 9), TEAMS_THREE]) is None
    full = await counters.enter("g", [Places("key:other", 9), TEAMS_THREE])
    assert full == TEAMS_THREE
    assert await counters.enter("h", [Places("key:other", 2)]) is None, "g took none of it"


async def test_who_leaves_twice_or_never_came_gives_nothing_back(counters: Counters) -> None:
    for name in ("a", "b"):
        assert await counters.enter(name, [KEYS_TWO]) is None
    for name in ("a", "a", "never"):
        await leave(counters, name)
    assert await counters.enter("c", [KEYS_TWO]) is None
    assert await counters.enter("d", [KEYS_TWO]) == KEYS_TWO


async def test_a_higher_or_lower_limit_holds_from_the_next_request_on(counters: Counters) -> None:
    for name in ("a", "b"):
        assert await counters.enter(name, [KEYS_TWO]) is None
    assert await counters.enter("c", [Places("key:k", 3)]) is None
    await leave(counters, "a")
    lower = Places("key:k", 1)
    assert await counters.enter("d", [lower]) == lower
    await counters.renew()
    await leave(counters, "b")
    assert await counters.enter("d", [lower]) == lower
    await leave(counters, "c")
    assert await counters.enter("d", [lower]) is None


async def test_two_workers_share_the_places(pair: Pair) -> None:
    one, two = pair
    assert await one.enter("a", [KEYS_TWO]) is None
    assert await two.enter("b", [KEYS_TWO]) is None
    assert await one.enter("c", [KEYS_TWO]) == await two.enter("c", [KEYS_TWO]) == KEYS_TWO
    await leave(one, "a")
    assert await two.enter("c", [KEYS_TWO]) is None


async def test_a_thousand_who_come_and_go_at_once_are_never_too_many_and_leave_nothing(
    pair: Pair, redis_server: RedisServer
) -> None:
    most, under_way, served = Places("key:k", 5), 0, 0

    async def come_and_go(number: int) -> None:
        nonlocal under_way, served
        counters = pair[number % 2]
        if await counters.enter(f"r{number}", [most, TEAMS_THREE]) is None:
            under_way, served = under_way + 1, served + 1
            assert under_way <= 3
            await asyncio.sleep(0)
            under_way -= 1
            await leave(counters, f"r{number}")

    for first in range(0, 1000, 40):
        await asyncio.gather(*(come_and_go(number) for number in range(first, first + 40)), pair[0].renew())
    assert served >= 25
    client = connect(redis_server.url)
    assert [one async for one in client.scan_iter(f"{PREFIX}places:*")] == []
    await client.aclose()


async def test_the_places_of_a_worker_that_died_are_free_after_a_while_and_of_one_that_lives_are_not(
    redis_server: RedisServer,
) -> None:
    dead, alive = shared(redis_server, "dead", place_seconds=1.0), shared(redis_server, "alive")
    client = connect(redis_server.url)

    async def ends_at() -> float:
        return cast(float, await client.zscore(f"{PREFIX}places:key:k", "b"))

    began = time.monotonic()
    assert await dead.enter("a", [KEYS_TWO]) is None
    assert await alive.enter("b", [KEYS_TWO]) is None
    before = await ends_at()
    while await alive.enter("c", [KEYS_TWO]):
        await alive.renew()
        assert time.monotonic() < began + PATIENCE_SECONDS, "the dead worker holds its place for ever"
        await asyncio.sleep(0.05)
    assert time.monotonic() - began > 0.9
    await alive.renew()
    assert await ends_at() > before + 900
    assert await alive.enter("d", [KEYS_TWO]) == KEYS_TWO
    for each in (dead, alive, client):
        await each.aclose()


async def test_places_are_there_again_after_a_flush(pair: Pair, redis_server: RedisServer) -> None:
    one, two = pair
    assert await one.enter("a", [KEYS_TWO, TEAMS_THREE]) is None
    assert await one.enter("b", [KEYS_TWO, TEAMS_THREE]) is None
    redis_server.flush()
    await one.renew()
    assert await two.enter("c", [KEYS_TWO]) == KEYS_TWO
    assert await two.enter("c", [TEAMS_THREE]) is None
    assert await two.enter("d", [TEAMS_THREE]) == TEAMS_THREE


async def test_who_leaves_while_places_are_renewed_has_left(pair: Pair) -> None:
    one, two = pair
    for _ in range(20):
        names = [f"{number}" for number in range(2)]
        for name in names:
            assert await one.enter(name, [KEYS_TWO]) is None
        renewing = asyncio.create_task(one.renew())
        await asyncio.sleep(0)
        await asyncio.gather(*(leave(one, name) for name in names))
        await renewing
        assert await two.enter("c", [KEYS_TWO]) is None
        assert await two.enter("d", [KEYS_TWO]) is None
        await asyncio.gather(leave(two, "c"), leave(two, "d"))


async def test_a_renewal_that_comes_after_who_left_takes_no_place(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = pair
    places = one._places  # pyright: ignore[reportPrivateUsage]
    run, refused = places._run, list[Places | None]()  # pyright: ignore[reportPrivateUsage]

    async def late(script: str, keys: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
        if script != RENEW:
            return await run(script, keys, arguments)
        await leave(one, "a")
        answer = await run(script, keys, arguments)
        refused.append(await two.enter("b", [Places("key:k", 1)]))
        return answer

    monkeypatch.setattr(places, "_run", late)
    assert await one.enter("a", [Places("key:k", 1)]) is None
    await one.renew()
    assert refused == [None]
    assert await one.enter("c", [Places("key:k", 1)]) is not None, "and b, who came then, keeps it"


async def test_who_gives_up_while_it_asks_for_a_place_has_none(pair: Pair) -> None:
    one, two = pair
    for turns in range(30):
        asking = asyncio.create_task(one.enter("a", [Places("key:k", 1)]))
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        if not (await asyncio.gather(asking, return_exceptions=True))[0]:
            await leave(one, "a")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while await two.enter("b", [Places("key:k", 1)]):
            assert time.monotonic() < deadline, "the place is held by nobody"
            await asyncio.sleep(0.005)
        await leave(two, "b")


async def test_a_request_that_gave_up_before_redis_heard_of_it_has_no_place(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    places = one._places  # pyright: ignore[reportPrivateUsage]
    run, is_held, goes_on = places._run, asyncio.Event(), asyncio.Event()  # pyright: ignore[reportPrivateUsage]

    async def held_back(script: str, keys: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
        is_held.set()
        await goes_on.wait()
        return await run(script, keys, arguments)

    def late(script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Awaitable[list[Any]]:
        """It has left this process: who gives up does not stop it."""
        return asyncio.shield(held_back(script, keys, arguments)) if script == ENTER else run(script, keys, arguments)

    monkeypatch.setattr(places, "_run", late)
    asking = asyncio.create_task(one.enter("a", [Places("key:k", 1)]))
    await is_held.wait()
    asking.cancel()
    asyncio.get_running_loop().call_later(0.05, goes_on.set)
    await asyncio.wait((asking,))
    await goes_on.wait()
    await one.aclose()
    assert await two.enter("b", [Places("key:k", 1)]) is None


async def test_while_the_store_is_down_a_worker_keeps_to_its_share_of_the_places(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with RedisServer(tmp_path_factory.mktemp("down-places")) as server:
        one, two = (shared(server, name) for name in ("one", "two"))
        await two.report({})
        await one.report({})
        four, single = Places("key:k", 4), Places("key:single", 1)
        assert await one.enter("before", [four]) is None
        server.stop()
        assert await one.enter("a", [four]) is None
        assert await one.enter("b", [four]) == four, "what it had taken before counts"
        assert await one.enter("c", [single]) is None, "of every limit it has one at least"
        assert await one.enter("d", [single]) == single
        for name in ("before", "c"):
            await leave(one, name)
        await one.renew()
        server.start()
        await one.report({})
        await one.renew()
        for name in ("e", "f", "g"):
            assert await two.enter(name, [four]) is None, "shared again, with what was taken meanwhile"
        assert await two.enter("h", [four]) == four
        await one.aclose()
        await two.aclose()


async def test_a_clock_that_was_put_back_keeps_no_place_taken(redis_server: RedisServer) -> None:
    """A dead worker's places would last until the clock is back where it was."""
    counters, client = shared(redis_server), connect(redis_server.url)
    await client.zadd(f"{PREFIX}places:key:k", {"dead": time.time() * 1000 + 86_400_000})
    only = Places("key:k", 1)
    assert await counters.enter("a", [only]) is None
    assert await counters.enter("b", [only]) == only
    await counters.aclose()
    await client.aclose()
