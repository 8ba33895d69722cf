"""Kept responses shared by all workers and replicas through Redis, which forgets them after their time.

Give that Redis a `maxmemory` and the policy `volatile-lru`: then it drops the least recently used when it is full.
"""

from typing import cast

from redis.asyncio import Redis

from gateway.storage.redis.bytes import answering

PREFIX = "breakeven:turns:"
PATIENCE_SECONDS = 1.0
"""How long an answer's end waits for its turn to be kept."""


class RedisTurns:
    """Implements TurnStore. The client's values are bytes (redis/bytes.py)."""

    def __init__(self, client: "Redis", *, prefix: str = PREFIX, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._client = client
        self._prefix = prefix
        self._patience_seconds = patience_seconds

    async def get(self, name: str, seconds: float) -> bytes | None:
        async with answering(self._patience_seconds):
            return cast(bytes | None, await self._client.getex(self._prefix + name, px=round(seconds * 1000)))

    async def put(self, name: str, value: bytes, seconds: float) -> None:
        async with answering(self._patience_seconds):
            await self._client.set(self._prefix + name, value, px=round(seconds * 1000))

    async def delete(self, name: str) -> bool:
        async with answering(self._patience_seconds):
            return bool(await self._client.delete(self._prefix + name))
