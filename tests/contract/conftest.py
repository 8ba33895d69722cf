"""The implementations of Counters: for a single process, and for workers that share Redis."""

from collections.abc import AsyncIterator

import pytest

from gateway.limits.counters import Counters
from gateway.limits.local_counters import LocalCounters
from tests.contract.redis_counters import Pair, shared
from tests.redis_server import SERVERS, Reached, RedisServer


@pytest.fixture(params=["local", "redis", "redis cluster"])
async def counters(request: pytest.FixtureRequest) -> AsyncIterator[Counters]:
    if request.param == "local":
        yield LocalCounters(less_seconds=0.1)
        return
    server: Reached = request.getfixturevalue(SERVERS[request.param])
    made = shared(server)
    yield made
    await made.aclose()


@pytest.fixture
async def pair(redis_server: RedisServer) -> AsyncIterator[Pair]:
    one, two = (shared(redis_server, name) for name in ("one", "two"))
    yield one, two
    await one.aclose()
    await two.aclose()
