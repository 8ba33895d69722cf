"""Limits on concurrent requests, over real sockets and a real Redis: whatever happens to a call, its place is free
afterwards."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import httpx
import pytest

from backends.scripted import Outcome, follow
from gateway.api.shedding import Load, Shedding
from gateway.api.token_path import credential_of
from gateway.api.under_way import UnderWay
from gateway.limits.admission import Admission
from gateway.limits.counters import Places
from gateway.limits.treasury import Treasury
from gateway.limits.values import Rates, SharedLimits, parse_limits
from gateway.process.patient_protocol import patient_protocol
from gateway.storage.redis.counters import PREFIX, RedisCounters, connect
from tests.integration.batch_service import begun, counts, opened, request, until
from tests.integration.service import Service
from tests.live_server import serving
from tests.redis_server import RedisServer
from tests.rig import KEY, Rig

pytestmark = pytest.mark.integration
CALLS, AT_ONCE = 1000, 25
MESSAGES = [{"role": "user", "content": "hello"}]


class Bounded(Service):
    """A service with the layers that limit bodies and calls, over Redis."""

    def __init__(self, counters: RedisCounters, seed: int) -> None:
        self.random = random.Random(seed)
        self.counters = counters
        limits = {"key-1": parse_limits({"max_parallel_requests": 12})}
        admission = Admission(limits=limits, treasury=Treasury(counters))
        super().__init__(Rig(one=self._outcome, admission=admission))
        keys = self.rig.pipeline.keys
        self.bounded = Shedding(
            UnderWay(self.app, admission, lambda scope: keys.authenticate(credential_of(scope["headers"]), 0)),
            Load(),
            lambda scope, came: 1 << 20,
            whose=lambda scope: "key-1",
            max_requests=1000,
            max_buffered_bytes=1 << 30,
            body_seconds=0.05,
        )

    def _outcome(self, call: object) -> Outcome:
        fault = self.random.choice((None, None, None, "unavailable", "truncated", "garbage"))
        return Outcome(fault=fault, piece_delay_seconds=self.random.choice((0.0, 0.002, 0.01)))


@pytest.fixture
async def counters(redis_server: RedisServer) -> AsyncGenerator[RedisCounters]:
    made = RedisCounters(connect(redis_server.url), worker="one")
    yield made
    await made.aclose()


async def befall(service: Bounded, port: int, number: int) -> bytes:
    """Makes one call with a random mishap; returns the first line of the answer, if any."""
    luck, chance = service.random.random(), service.random
    body = json.dumps({"model": "auto", "messages": MESSAGES, "stream": chance.random() < 0.7}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
    if chance.random() < 0.2:
        head += f"idempotency-key: order-{number}\r\n"
    whole = f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
    said = b""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        with anyio.move_on_after(20):
            try:
                if luck < 0.15:  # disconnects after half a body
                    await stream.send(whole[: -len(body) // 2])
                    await asyncio.sleep(chance.random() * 0.01)
                    return b"left"
                if luck < 0.2:  # stops after half a body
                    await stream.send(whole[: -len(body) // 2])
                else:
                    await stream.send(whole)
                if 0.2 < luck < 0.45:  # disconnects at any moment
                    await asyncio.sleep(chance.random() * 0.05)
                    return b"left"
                while part := await stream.receive():
                    said += part
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
    return said.partition(b"\r\n")[0]


async def test_after_a_thousand_calls_with_any_fault_redis_holds_no_place(
    counters: RedisCounters, redis_server: RedisServer
) -> None:
    service = Bounded(counters, seed=1)
    told: set[bytes] = set()
    async with serving(service.bounded, http=patient_protocol(30.0)) as url:
        port = int(url.rpartition(":")[2])
        for first in range(0, CALLS, AT_ONCE):
            calls = (befall(service, port, number) for number in range(first, first + AT_ONCE))
            told |= set(await asyncio.gather(*calls))
            await counters.renew()
        client = connect(redis_server.url)
        async with asyncio.timeout(60):
            while [one async for one in client.scan_iter(f"{PREFIX}places:*")]:
                await asyncio.sleep(0.02)
        await client.aclose()
        assert await counters.enter("probe", [Places("key:key-1", 1)]) is None
    statuses = {line.split()[1] for line in told if line.startswith(b"HTTP")}
    assert {b"200", b"408", b"429"} <= statuses, "some of everything happened"
    assert not service.rig.ledger.open


async def test_redis_is_asked_once_before_and_once_after_and_never_where_no_such_limit_is_set(
    counters: RedisCounters, redis_server: RedisServer
) -> None:
    service = Bounded(counters, seed=1)
    service.rig.one._script = follow([Outcome()])  # pyright: ignore[reportPrivateUsage]
    admission, client = service.rig.pipeline.admission, connect(redis_server.url)
    shared = SharedLimits(teams={"red": Rates(max_parallel_requests=20)})

    async def visits() -> int:
        return (await client.info("commandstats"))["cmdstat_evalsha"]["calls"]

    async def visits_of_a_call(http: httpx.AsyncClient) -> int:
        before = await visits()
        answer = await http.post("/v1/chat/completions", json={"model": "auto", "messages": MESSAGES})
        assert answer.status_code == 200
        return await visits() - before

    async with serving(service.bounded) as url:
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
            await visits_of_a_call(http)  # loads the scripts into Redis
            assert await visits_of_a_call(http) == 2
            admission.shared = shared
            assert await visits_of_a_call(http) == 2, "for the key and its team together"
            admission.limits, admission.shared = {}, SharedLimits()
            assert await visits_of_a_call(http) == 0
    await client.aclose()


async def test_lines_of_a_batch_wait_where_their_key_has_as_many_under_way_as_it_may(tmp_path: Path) -> None:
    """And they count as well: no more of them are processed at a time."""
    beside: list[int] = []

    def noted(call: object) -> Outcome:
        beside.append(batches.rig.one.open_replies)
        return Outcome(piece_delay_seconds=0.005)

    async with opened(tmp_path, one=noted) as batches:
        admission = batches.rig.pipeline.admission
        admission.limits = {"key-1": parse_limits({"max_parallel_requests": 1})}
        held = await admission.enter("key-1")
        assert held is not None
        async with batches.client() as client, batches.working():
            batch = await begun(client, *(request(number) for number in range(1, 9)))
            await until(client, batch, lambda one: one.status == "in_progress")
            await asyncio.sleep(0.3)
            assert not beside, "the key has its one request under way"
            held.let_go()
            done = await until(client, batch)
        assert (done.status, counts(done)) == ("completed", (8, 8, 0))
        assert beside == [0] * 8
