"""Places of requests in progress, shared by all workers and replicas through Redis; see gateway.limits.counters.

One sorted set per bucket: request -> when its place expires unless renewed. Redis may lose everything: renewing
restores it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from gateway.limits.counters import CountersDown, Places
from gateway.limits.held_places import HeldPlaces
from gateway.process.tasks import to_its_end

AT_ONCE: Final = 500
"""Requests per command: a command blocks Redis for everyone."""
# KEYS: the buckets; ARGV: duration of a place, the request, then each bucket's limit. -> {0} or {index of the first
# full bucket}. Places that expire later than any could were taken before the clock was put back: if still needed, they
# are renewed.
ENTER: Final = """
local place = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i, key in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  redis.call('ZREMRANGEBYSCORE', key, '(' .. string.format('%.0f', now + place), '+inf')
  if not redis.call('ZSCORE', key, ARGV[2]) and redis.call('ZCARD', key) >= tonumber(ARGV[i + 2]) then return {i} end
end
for _, key in ipairs(KEYS) do
  redis.call('ZADD', key, string.format('%.0f', now + place), ARGV[2])
  redis.call('PEXPIRE', key, place)
end
return {0}
"""

# KEYS: the buckets; ARGV: the requests to remove from all of them. -> {}
LEAVE: Final = """
for _, key in ipairs(KEYS) do
  for _, name in ipairs(ARGV) do redis.call('ZREM', key, name) end
end
return {}
"""

# KEYS: the buckets; ARGV: duration of a place, "restore" or "", then pairs of a request and the index of its bucket. ->
# the requests that have no place. They get one only to restore it: one that ended a moment ago may have left already,
# and its place would refuse another.
RENEW: Final = """
local time = redis.call('TIME')
local ends = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1]))
local missing = {}
for i = 3, #ARGV, 2 do
  local key = KEYS[tonumber(ARGV[i + 1])]
  if ARGV[2] == 'restore' or redis.call('ZSCORE', key, ARGV[i]) then
    redis.call('ZADD', key, ends, ARGV[i])
  else
    missing[#missing + 1] = ARGV[i]
  end
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[1]) end
return missing
"""
PLACE_SCRIPTS: Final = (ENTER, LEAVE, RENEW)
Run = Callable[[str, Sequence[str], Sequence[Any]], Awaitable[list[Any]]]
"""Runs a script with keys and arguments. Raises CountersDown."""


class RedisPlaces:
    """`enter`, `leave` and `renew` of Counters. While Redis is down, this worker grants its part of each limit, divided
    by `share`, the last known number of workers."""

    def __init__(
        self,
        run: Run,
        *,
        is_down: Callable[[], bool],
        share: Callable[[], int],
        prefix: str,
        place_seconds: float,
    ) -> None:
        self._run = run
        self._place_ms = round(place_seconds * 1000)
        self._is_down = is_down
        self._prefix = prefix
        self._held = HeldPlaces(share)
        self._unheard: set[str] = set()  # requests whose places Redis does not know
        self._left: dict[str, tuple[str, ...]] = {}  # ended requests that Redis may not know of yet
        self._telling: set[asyncio.Task[None]] = set()

    async def enter(self, name: str, places: Sequence[Places]) -> Places | None:
        if self._is_down():
            full = self._held.try_take(name, places)
            if full is None:
                self._unheard.add(name)
            return full
        buckets, mosts = tuple(one.bucket for one in places), [one.most for one in places]
        try:
            answer = await to_its_end(self._run(ENTER, self._keys(buckets), [self._place_ms, name, *mosts]))
        except CountersDown:  # Redis may have run it nevertheless
            full = self._held.try_take(name, places)
            if full is not None:
                self._left[name] = buckets
            return full
        except BaseException:
            self._tell_left(name, buckets)
            raise
        if answer[0]:
            return places[answer[0] - 1]
        self._held.take(name, places)
        return None

    def leave(self, name: str) -> Awaitable[object] | None:
        buckets = self._held.give_back(name)
        if not buckets or name in self._unheard:
            self._unheard.discard(name)
            return None
        return self._tell_left(name, buckets)

    async def renew(self) -> None:
        if self._is_down():
            return
        try:
            await self._tell_all_left()
            await self._renew(self._held.all())
        except CountersDown:
            return  # `report` notices it too, and logs it

    async def aclose(self) -> None:
        """Waits until Redis has been told which requests ended."""
        await asyncio.gather(*self._telling)

    def _tell_left(self, name: str, buckets: tuple[str, ...]) -> asyncio.Task[None] | None:
        self._left[name] = buckets
        if self._is_down():
            return None
        task = asyncio.create_task(self._leave(name, buckets))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)
        return task

    async def _leave(self, name: str, buckets: Sequence[str]) -> None:
        try:
            await self._run(LEAVE, self._keys(buckets), [name])
        except CountersDown:
            return  # `renew` tells Redis once it is back
        self._left.pop(name, None)

    async def _tell_all_left(self) -> None:
        names = list(self._left)[:AT_ONCE]
        if names:
            buckets = {bucket for name in names for bucket in self._left[name]}
            await self._run(LEAVE, self._keys(buckets), names)
            for name in names:
                self._left.pop(name, None)

    async def _renew(self, held: Mapping[str, tuple[str, ...]]) -> None:
        self._unheard.difference_update(held)
        missing = await self._place(held)
        lost = {name: buckets for name, buckets in held.items() if name in missing and name in self._held}
        try:
            await self._place(lost, how="restore")
        finally:
            gone = {name: buckets for name, buckets in lost.items() if name not in self._held}
            self._left |= gone  # ended meanwhile: their places may have been restored after they left
        if gone:
            await self._tell_all_left()

    async def _place(self, held: Mapping[str, tuple[str, ...]], *, how: str = "") -> set[str]:
        """Runs RENEW for all; returns the requests that have no place."""
        names, missing = list(held), set[str]()
        for first in range(0, len(names), AT_ONCE):
            numbers: dict[str, int] = {}
            pairs = [
                part
                for name in names[first : first + AT_ONCE]
                for bucket in held[name]
                for part in (name, numbers.setdefault(bucket, len(numbers) + 1))
            ]
            missing.update(await self._run(RENEW, self._keys(numbers), [self._place_ms, how, *pairs]))
        return missing

    def _keys(self, buckets: Iterable[str]) -> list[str]:
        return [f"{self._prefix}{bucket}" for bucket in buckets]
