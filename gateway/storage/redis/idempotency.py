"""Idempotency keys shared by all workers and replicas through Redis. Implements IdempotencyStore.

One key per name. While a worker serves the request and renews its claim, the value is `R`, the fingerprint and the
claim's owner; afterwards `F`, the fingerprint and the answer.
"""

import secrets

import msgspec
from redis.asyncio import Redis

from gateway.kept_answers.idempotency import Found, Recorded
from gateway.storage.redis.client import ANSWER_SECONDS, answering, rooted
from gateway.storage.redis.shares import KEEP, share_of

PREFIX = "breakeven:idempotency:"
FINGERPRINT_BYTES = 32
LEASE_SECONDS = 30.0
LEASE_MS = round(LEASE_SECONDS * 1000)
CLAIM = """
local held = redis.call('GET', KEYS[1])
if not held then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
elseif string.sub(held, 1, 1) == 'R' and redis.call('PTTL', KEYS[1]) > tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])  -- the clock was put back
end
return held
"""
# A claim that Redis lost (it was emptied, or its clock put forward) is made again: else an equal request is served too.
RENEW = (
    "local held = redis.call('GET', KEYS[1]) if not held or held == ARGV[1] then "
    "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end return 0"
)
FINISH = (
    KEEP + "local held = redis.call('GET', KEYS[1]) if not held or held == ARGV[1] then "
    "keep(KEYS[1], ARGV[2], ARGV[3], ARGV[4]) end return 0"
)
ABANDON = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class RedisIdempotency:
    """One per worker, with a client of its own, which its creator closes."""

    lease_seconds = LEASE_SECONDS

    def __init__(
        self,
        client: Redis,
        *,
        seconds: float = 86_400.0,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._claim, self._renew, self._finish, self._abandon = map(
            client.register_script, (CLAIM, RENEW, FINISH, ABANDON)
        )
        self._prefix = rooted(client, PREFIX)
        self._seconds = seconds
        self._answer_seconds = answer_seconds
        # After a pause longer than the lease, a worker must not abandon, renew or answer a claim made since by another.
        self._owner = secrets.token_bytes(16)

    async def claim(self, name: str, fingerprint: bytes) -> Found | None:
        async with answering(self._answer_seconds):
            value: bytes | None = await self._claim(
                keys=[self._prefix + name], args=[self._claimed(fingerprint), LEASE_MS]
            )
        return None if value is None else _found(value)

    async def renew(self, name: str, fingerprint: bytes) -> None:
        async with answering(self._answer_seconds):
            await self._renew(keys=[self._prefix + name], args=[self._claimed(fingerprint), LEASE_MS])

    async def finish(self, name: str, fingerprint: bytes, recorded: Recorded, *, owner: str = "") -> None:
        value = b"F" + fingerprint + msgspec.msgpack.encode(recorded)
        told = (self._claimed(fingerprint), value, round(self._seconds * 1000), share_of(owner, self._prefix))
        async with answering(self._answer_seconds):
            await self._finish(keys=[self._prefix + name], args=told)

    async def abandon(self, name: str, fingerprint: bytes) -> None:
        async with answering(self._answer_seconds):
            await self._abandon(keys=[self._prefix + name], args=[self._claimed(fingerprint)])

    def _claimed(self, fingerprint: bytes) -> bytes:
        return b"R" + fingerprint + self._owner


def _found(value: bytes) -> Found:
    fingerprint, rest = value[1 : 1 + FINGERPRINT_BYTES], value[1 + FINGERPRINT_BYTES :]
    if value[:1] == b"R":
        return Found(fingerprint, None)
    return Found(fingerprint, msgspec.msgpack.decode(rest, type=Recorded))
