"""Counters in a real Redis, with timeouts long enough for tests."""

from gateway.storage.redis.counters import RedisCounters, connect
from tests.redis_server import Reached

PATIENCE_SECONDS = 120.0
Pair = tuple[RedisCounters, RedisCounters]


def shared(server: Reached, worker: str = "one", *, place_seconds: float = PATIENCE_SECONDS) -> RedisCounters:
    return RedisCounters(
        connect(server.url),
        worker=worker,
        settle_seconds=0.1,
        less_seconds=0.1,
        place_seconds=place_seconds,
    )
