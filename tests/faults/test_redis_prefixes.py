"""Warm prefixes over a real Redis: who learns what, how much is kept, and that an unreachable Redis is no error."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis

from gateway.process.tasks import end_tasks
from gateway.storage.redis.client import connect_bytes
from gateway.storage.redis.prefixes import AGAIN_SECONDS, NOTES_A_RECORD, PREFIX, RedisPrefixes
from gateway.upstreams.shared_prefixes import SharedWarmPrefixes, WarmNote
from tests.redis_server import SERVERS, Reached, RedisServer
from tests.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.integration]
PATIENCE_SECONDS = 120.0
ANSWER_SECONDS = 60.0  # with less, a frozen machine loses notes, as it may
HOUR = 3600.0
REDIS_TRIMS_AT_ONCE = 100
"""Redis's stream-node-max-entries: an approximate limit drops whole nodes only."""
PROMPT = (b"fingerprint", 3000)


@asynccontextmanager
async def worker(server: Reached, replica: str = "one", *, most: int = 5000) -> AsyncGenerator[SharedWarmPrefixes]:
    client = connect_bytes(server.url)
    warm = SharedWarmPrefixes(RedisPrefixes(client, replica=replica, most_records=most, answer_seconds=ANSWER_SECONDS))
    running = asyncio.create_task(warm.run())
    try:
        yield warm
    finally:
        await end_tasks([running])
        await warm.channel.aclose()


def note(warm: SharedWarmPrefixes, model: str, *, is_replicas_own: bool = False) -> None:
    warm.note("t", PROMPT, model, 2944, warm.monotonic() + HOUR, is_replicas_own=is_replicas_own)


def known(warm: SharedWarmPrefixes) -> set[str]:
    return set(warm.lookup("t", [PROMPT], warm.monotonic()))


@pytest.mark.parametrize("kind", SERVERS)
async def test_workers_learn_from_each_other_and_a_new_one_what_was_said_before(
    kind: str, request: pytest.FixtureRequest
) -> None:
    redis_server: Reached = request.getfixturevalue(SERVERS[kind])
    async with worker(redis_server) as one, worker(redis_server, "two") as two:
        note(one, "a")
        note(two, "b")
        await until(lambda: known(one) == known(two) == {"a", "b"})
    async with worker(redis_server, "three") as later:
        await until(lambda: known(later) == {"a", "b"})


async def test_a_replicas_own_engine_is_warm_for_its_own_workers_only(redis_server: RedisServer) -> None:
    async with worker(redis_server) as one, worker(redis_server) as beside, worker(redis_server, "two") as other:
        note(one, "own", is_replicas_own=True)
        await until(lambda: known(beside) == {"own"})
        note(one, "hosted")  # sent later, so a worker that knows it knows the other too
        await until(lambda: known(other))
        assert known(other) == {"hosted"}


async def test_a_flushed_redis_loses_the_past_and_no_worker_its_memory(redis_server: RedisServer) -> None:
    async with worker(redis_server) as one, worker(redis_server) as two:
        note(one, "before")
        await until(lambda: known(two) == {"before"})
        redis_server.flush()
        note(two, "after")
        await until(lambda: known(one) == {"before", "after"})
        assert known(two) == {"before", "after"}


async def test_a_redis_that_is_away_is_no_error_and_they_find_each_other_again(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        async with worker(server) as one, worker(server) as two:
            note(one, "before")
            await until(lambda: known(two) == {"before"})
            server.stop()
            note(one, "meanwhile")
            assert known(one) == {"before", "meanwhile"}
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while "after" not in known(two):
                    note(one, "after")
                    await asyncio.sleep(0.1)


async def test_a_worker_says_once_that_it_hears_nothing_and_once_that_it_hears_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def said(text: str) -> int:
        return sum(text in record.message for record in caplog.records)

    with RedisServer(tmp_path) as server:
        async with worker(server) as one, worker(server, "two") as two:
            note(two, "before")
            await until(lambda: known(one) == {"before"})
            server.stop()
            await until(lambda: said("are not received") == 2)
            await asyncio.sleep(3 * AGAIN_SECONDS)  # it fails a few more times without a log line
            await asyncio.to_thread(server.start)
            await until(lambda: said("are received again") == 2)
            assert said("are not received") == 2


async def test_a_stream_is_bounded_and_forgets_itself(redis_server: RedisServer) -> None:
    client = connect_bytes(redis_server.url)
    channel = RedisPrefixes(client, replica="one", most_records=10, answer_seconds=ANSWER_SECONDS)
    for number in range(400):
        await channel.tell([WarmNote("t", b"%d" % number, "m", 2944, HOUR)], only_replica=False)
    await channel.aclose()
    with redis.Redis("127.0.0.1", redis_server.port) as client:
        records = int(client.xlen(PREFIX))
        assert 10 <= records <= 10 + REDIS_TRIMS_AT_ONCE
        assert 0 < int(client.ttl(PREFIX)) <= HOUR


async def test_many_notes_go_in_several_records_and_arrive_whole(redis_server: RedisServer) -> None:
    async with worker(redis_server) as one, worker(redis_server) as two:
        many = [(b"%d" % number, 3000) for number in range(10 * NOTES_A_RECORD)]
        for prefix in many:
            one.note("t", prefix, "m", 2944, one.monotonic() + HOUR)
        await until(lambda: all(two.lookup("t", [prefix], two.monotonic()) for prefix in many))
