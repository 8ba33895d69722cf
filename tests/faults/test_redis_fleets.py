"""A Redis Cluster and Redis behind Sentinels: servers killed, frozen or demoted, keys moved to another node. The same
promises as with one server, which is found again by itself."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path

import pytest

from gateway.errors import Overloaded, StoreDown
from gateway.limits.counters import CountersDown
from gateway.process.tasks import end_tasks
from gateway.storage.redis.client import connect_bytes
from gateway.storage.redis.counters import PREFIX, RedisCounters, connect
from gateway.storage.redis.news import RedisNews
from gateway.storage.redis.turns import RedisTurns
from tests.faults.budget_worker import Worker, two_workers
from tests.redis_fleets import DEAD_AFTER_MS, PRIMARY, RedisCluster, Sentinels, ask, info, sentinel_file
from tests.redis_server import PATIENCE_SECONDS, PATIENT, RedisServer
from tests.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.integration]


@pytest.fixture(params=["cluster", "sentinels"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisCluster | Sentinels]:
    is_cluster = request.param == "cluster"
    with RedisCluster(tmp_path, dead_after_ms=DEAD_AFTER_MS) if is_cluster else Sentinels(tmp_path) as running:
        yield running


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path) as running:
        yield running


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[Sentinels]:
    with Sentinels(tmp_path) as running:
        yield running


async def spend_the_rest(worker: Worker) -> int:
    spent = 0
    while True:
        try:
            if not await worker.spend(9):
                return spent
            spent += 9
        except Overloaded:
            await asyncio.sleep(0.05)


async def test_after_a_killed_primary_nothing_is_given_back_answers_are_kept_and_news_heard(
    fleet: RedisCluster | Sentinels,
) -> None:
    async with connect(fleet.url) as told, connect_bytes(fleet.url) as client, two_workers(fleet) as (one, two):
        news, turns, heard = RedisNews(told), RedisTurns(client, patience_seconds=PATIENCE_SECONDS), asyncio.Event()
        listening = asyncio.create_task(news.listen(heard.set))
        for _ in range(10):
            assert await one.spend(40)
            assert await two.spend(20)
        await turns.put("before", b"1", 60.0, owner="bob")
        written = info(fleet.primary, "replication")["master_repl_offset"]
        await until(lambda: info(fleet.replica, "replication")["slave_repl_offset"] >= written)
        fleet.primary.stop()

        async def is_kept() -> bool:
            with contextlib.suppress(StoreDown):
                await turns.put("after", b"2", 60.0, owner="bob")
                return True
            return False

        async def is_heard() -> bool:
            heard.clear()
            await news.announce()
            await asyncio.sleep(0.05)
            return heard.is_set()

        await until(is_kept)
        assert (await turns.get("before", 60.0), await turns.get("after", None)) == (b"1", b"2")
        await until(is_heard)
        await end_tasks([listening])
        spent = 600 + sum(await asyncio.gather(spend_the_rest(one), spend_the_rest(two)))
    assert 1000 - 9 < spent <= 1000


async def test_a_demoted_primary_fails_no_call(sentinels: Sentinels) -> None:
    """By hand, as before a machine's maintenance: each open connection to it would refuse a call."""
    client = connect(sentinels.url)
    counters = RedisCounters(client, worker="one")
    await asyncio.gather(*(client.ping() for _ in range(5)))
    ask(sentinels.sentinels[0], "SENTINEL", "FAILOVER", PRIMARY)
    await until(lambda: all(sentinels.knows(one) == sentinels.replica.port for one in sentinels.sentinels))
    ask(sentinels.primary, "REPLICAOF", "127.0.0.1", sentinels.replica.port)  # as they will, after a while
    await asyncio.gather(*(counters.report({}) for _ in range(5)))
    await counters.aclose()


async def test_a_primary_that_stood_still_is_not_used_again(sentinels: Sentinels) -> None:
    """It takes changes until a Sentinel reaches it: what is leased there is not seen by those who lease elsewhere."""
    client = connect(sentinels.url)
    counters = RedisCounters(client, worker="one")
    await asyncio.gather(*(client.info("server") for _ in range(5)))
    os.kill(sentinels.primary.pid, signal.SIGSTOP)
    await until(lambda: all(sentinels.knows(one) == sentinels.replica.port for one in sentinels.sentinels))
    with pytest.raises(TimeoutError):  # by a connection that was open
        async with asyncio.timeout(0.2):
            await counters.report({})
    await counters.report({})
    os.kill(sentinels.primary.pid, signal.SIGCONT)
    new = info(sentinels.replica, "server")["run_id"]
    assert {told["run_id"] for told in await asyncio.gather(*(client.info("server") for _ in range(5)))} == {new}
    await counters.aclose()


async def test_sentinels_are_told_apart_from_those_that_know_nothing(sentinels: Sentinels) -> None:
    counters = RedisCounters(connect(sentinels.url.replace(PRIMARY, "other")), worker="one")
    with pytest.raises(CountersDown, match=r"none of the 3 Sentinels says .* watches no primary that it calls other"):
        await counters.report({})
    await counters.aclose()
    for each in sentinels.sentinels[:2]:
        each.stop()
    counters = RedisCounters(connect(sentinels.url), worker="one")
    await counters.report({})
    await counters.aclose()


async def test_sentinels_have_a_password_of_their_own(tmp_path: Path) -> None:
    with RedisServer(tmp_path, told=("--requirepass", "ours")) as primary:
        file = sentinel_file(
            tmp_path / "sentinel.conf", primary, f"sentinel auth-pass {PRIMARY} ours", "requirepass theirs"
        )
        with RedisServer(tmp_path, told=(str(file), "--sentinel")) as sentinel:
            address = f"redis+sentinel://:ours@127.0.0.1:{sentinel.port}/{PRIMARY}/1?{PATIENT}"
            async with connect(f"{address}&sentinel_password=theirs") as client:
                assert await client.ping()
                assert client.connection_pool.connection_kwargs["db"] == 1
            counters = RedisCounters(connect(address), worker="one")
            with pytest.raises(CountersDown, match=r"none of the 1 Sentinels .* sentinel_username and _password"):
                await counters.report({})
            await counters.aclose()


@pytest.mark.parametrize("first", [f"{PREFIX}epoch", f"{PREFIX}*:meta"])
async def test_keys_that_are_moved_to_another_node_are_found_there(cluster: RedisCluster, first: str) -> None:
    target = cluster.others[0]
    async with two_workers(cluster) as (one, two), connect_bytes(cluster.url) as client:
        for _ in range(10):
            assert await one.spend(40)
            assert await two.spend(20)
        turns = RedisTurns(client, patience_seconds=PATIENCE_SECONDS)
        await turns.put("a", b"1", 60.0)
        [key] = [name async for name in one.client.scan_iter(first)]
        cluster.begin_to_move(target, key)
        with pytest.raises(CountersDown, match="its keys are being moved to another node of the cluster"):
            await one.counters.report({})
        await asyncio.gather(*(client.ping() for _ in range(5)))
        cluster.end_the_move(target)
        assert await asyncio.gather(*(turns.get("a", None) for _ in range(5))) == [b"1"] * 5, "nobody is told"
        spent = 600 + sum(await asyncio.gather(spend_the_rest(one), spend_the_rest(two)))
    assert 1000 - 9 < spent <= 1000


async def test_an_address_that_leads_to_another_server_by_now_fails_no_call(tmp_path: Path) -> None:
    """A name or a proxy that always leads to the primary. Each open connection to the former one refused one call."""
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    with RedisServer(places[0]) as former, RedisServer(places[1]) as new:
        leading = [former]
        async with leading_to(lambda: leading[0].port) as port:
            client = connect(f"redis://127.0.0.1:{port}/0?{PATIENT}")
            counters = RedisCounters(client, worker="one")
            await counters.report({})
            await asyncio.gather(*(client.ping() for _ in range(5)))
            ask(former, "REPLICAOF", "127.0.0.1", new.port)
            leading[0] = new
            await asyncio.gather(*(counters.report({}) for _ in range(5)))
            await counters.aclose()


@contextlib.asynccontextmanager
async def leading_to(port: Callable[[], int]) -> AsyncGenerator[int]:
    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            while data := await reader.read(65_536):
                writer.write(data)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        their_reader, their_writer = await asyncio.open_connection("127.0.0.1", port())
        with contextlib.suppress(OSError):
            await asyncio.gather(pass_on(reader, their_writer), pass_on(their_reader, writer))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
