"""Cached answers, shared by all workers and replicas through Redis, where they expire.

Give that Redis a `maxmemory` and the policy `volatile-lru`, so that it drops the least recently used when it is full.
"""

from typing import cast

import msgspec
from redis.asyncio import Redis

from gateway.kept_answers.response_cache import CachedAnswer
from gateway.storage.redis.client import answering, rooted
from gateway.storage.redis.shares import PUT, share_of

PREFIX = "breakeven:answers:"
PATIENCE_SECONDS = 0.5
"""A cache that takes longer is useless."""


class RedisResponses:
    """Implements ResponseStore. The client's values are bytes (redis/client.py)."""

    def __init__(self, client: Redis, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._client = client
        self._prefix = rooted(client, PREFIX)
        self._put = client.register_script(PUT)
        self._patience_seconds = patience_seconds

    async def get(self, name: str) -> CachedAnswer | None:
        async with answering(self._patience_seconds):
            value = cast(bytes | None, await self._client.get(self._prefix + name))
        return None if value is None else msgspec.msgpack.decode(value, type=CachedAnswer)

    async def put(self, name: str, answer: CachedAnswer, seconds: int, *, owner: str = "") -> None:
        told = (msgspec.msgpack.encode(answer), seconds * 1000, share_of(owner, self._prefix))
        async with answering(self._patience_seconds):
            await self._put(keys=[self._prefix + name], args=told)
