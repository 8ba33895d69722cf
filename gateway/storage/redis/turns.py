"""Kept responses and conversations, shared by all workers and replicas through Redis, where they expire.

Give that Redis a `maxmemory` and the policy `volatile-lru`, so that it drops the least recently used when it is full.
"""

from typing import cast

from redis.asyncio import Redis

from gateway.kept_answers.record_store import Change
from gateway.storage.redis.client import answering, rooted
from gateway.storage.redis.shares import DELETE, KEEP, PUT, share_of

PREFIX = "breakeven:turns:"
CONVERSATIONS = "breakeven:conversations:"
LOCKS = "breakeven:conversation-locks:"
SWAP = (
    KEEP
    + """
local milliseconds, puts, renewed = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if (redis.call('GET', KEYS[1]) or false) ~= (ARGV[4] == '1' and ARGV[5] or false) then
  if redis.call('PTTL', KEYS[1]) > tonumber(milliseconds) then redis.call('PEXPIRE', KEYS[1], milliseconds) end
  return 0
end
for place = 1, puts do keep(KEYS[1 + place], ARGV[8 + place], milliseconds, ARGV[8]) end
for place = 1, renewed do redis.call('PEXPIRE', KEYS[1 + puts + place], milliseconds) end
for place = 2 + puts + renewed, #KEYS do drop(KEYS[place], ARGV[8]) end
if ARGV[6] == '1' then redis.call('SET', KEYS[1], ARGV[7], 'PX', milliseconds) else redis.call('DEL', KEYS[1]) end
return 1
"""
)
"""KEYS: the record to change, records to put with it, to renew, to delete. ARGV: milliseconds, how many to put, how
many to renew, whether the record exists and its old value, whether it shall exist and its new value, the owner's share,
then the values to put. Changes nothing, and returns 0, unless the record has its old value. A record that would outlive
any was written before the server's clock was set back: the lock of a process that died then would last for as long."""
PATIENCE_SECONDS = 1.0
"""How long the end of an answer waits for its turn to be stored."""


class RedisTurns:
    """Implements TurnStore and RecordStore. The client's values are bytes (redis/client.py)."""

    def __init__(self, client: Redis, *, prefix: str = PREFIX, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._client = client
        self._put, self._swap, self._delete = map(client.register_script, (PUT, SWAP, DELETE))
        self._prefix = rooted(client, prefix)
        self._patience_seconds = patience_seconds

    async def get(self, name: str, seconds: float | None) -> bytes | None:
        async with answering(self._patience_seconds):
            if seconds is None:
                return cast(bytes | None, await self._client.get(self._prefix + name))
            return cast(bytes | None, await self._client.getex(self._prefix + name, px=round(seconds * 1000)))

    async def put(self, name: str, value: bytes, seconds: float, *, owner: str = "") -> None:
        told = (value, round(seconds * 1000), share_of(owner, self._prefix))
        async with answering(self._patience_seconds):
            await self._put(keys=[self._prefix + name], args=told)

    async def delete(self, name: str, *, owner: str = "") -> bool:
        async with answering(self._patience_seconds):
            return bool(await self._delete(keys=[self._prefix + name], args=[share_of(owner, self._prefix)]))

    async def swap(self, change: Change, seconds: float) -> bool:
        names = (change.name, *change.beside, *change.renewed, *change.gone)
        told = (
            round(seconds * 1000),
            len(change.beside),
            len(change.renewed),
            *_said(change.was),
            *_said(change.value),
            share_of(change.owner, self._prefix),
            *change.beside.values(),
        )
        async with answering(self._patience_seconds):
            return await self._swap(keys=[self._prefix + name for name in names], args=told) == 1


def _said(value: bytes | None) -> tuple[int, bytes]:
    return (0, b"") if value is None else (1, value)
