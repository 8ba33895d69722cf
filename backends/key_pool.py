"""Several keys of one provider as one backend: each with its own limits and its own cool-down. Pure but for its clock.

The pool picks the key with the most room left; a key that was refused rests: for its Retry-After after a 429, for long
after a 401. Which attempt comes next stays the gateway's decision: a pool never retries by itself.
"""

import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from backends.errors import BackendError, RateLimited, UpstreamAuth
from backends.protocol import Backend, BackendHealth, Call, Chunk, Reply

WINDOW_SECONDS = 60.0
REST_AFTER_REFUSAL_SECONDS = 5.0
"""How long a key rests after a 429 that did not say."""
REST_AFTER_AUTH_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What the provider allows one key; None where it does not limit."""

    requests_per_minute: int | None = None
    concurrent_requests: int | None = None


@dataclass(slots=True)
class PooledKey:
    """One key: the backend that holds it, its limits, and what is under way. Only `label` may appear in logs."""

    label: str
    backend: Backend
    limits: KeyLimits = field(default_factory=KeyLimits)
    rests_until: float = 0.0
    started: deque[float] = field(default_factory=deque[float])
    under_way: int = 0

    def free_at(self, now: float) -> float:
        """The earliest time (of the pool's clock) at which this key may be used, concurrency apart."""
        while self.started and self.started[0] <= now - WINDOW_SECONDS:
            self.started.popleft()
        limit = self.limits.requests_per_minute
        is_full = limit is not None and len(self.started) >= limit
        return max(self.rests_until, self.started[0] + WINDOW_SECONDS if is_full and self.started else now)

    def room(self, now: float) -> float | None:
        """How empty the key is, from 0 to 1; None where it may not be used now."""
        limits = self.limits
        if self.free_at(now) > now or limits.requests_per_minute == 0:
            return None
        if limits.concurrent_requests is not None and self.under_way >= limits.concurrent_requests:
            return None
        used = [0.0]
        if limits.requests_per_minute:
            used.append(len(self.started) / limits.requests_per_minute)
        if limits.concurrent_requests:
            used.append(self.under_way / limits.concurrent_requests)
        return 1.0 - max(used)


class KeyPool:
    """A backend made of backends that differ only in their key. `clock` is monotonic, in seconds."""

    def __init__(self, name: str, keys: Sequence[PooledKey], *, clock: Callable[[], float] = time.monotonic) -> None:
        if not keys:
            raise ValueError("a key pool needs at least one key")
        self._name = name
        self._keys = tuple(keys)
        self._clock = clock

    @property
    def name(self) -> str:
        return self._name

    @property
    def is_simulated(self) -> bool:
        return any(key.backend.is_simulated for key in self._keys)

    async def open(self, call: Call) -> Reply:
        """As any backend's; RateLimited without a call when no key has room, saying when one will."""
        now = self._clock()
        key = self._pick(now)
        key.started.append(now)
        key.under_way += 1
        try:
            reply = await key.backend.open(call)
        except BaseException as error:
            key.under_way -= 1
            if isinstance(error, BackendError):
                self._note(key, error)
            raise
        return _PooledReply(reply, key, self._note)

    async def health(self) -> BackendHealth:
        """Of the key that would be used next; unhealthy while every key rests."""
        now = self._clock()
        rested = [key for key in self._keys if key.rests_until <= now]
        if not rested:
            return BackendHealth(False, "every key is cooling down")
        return await rested[0].backend.health()

    async def aclose(self) -> None:
        for key in self._keys:
            await key.backend.aclose()

    def _pick(self, now: float) -> PooledKey:
        rooms = [(room, -len(key.started), key) for key in self._keys if (room := key.room(now)) is not None]
        if rooms:
            return max(rooms, key=lambda item: item[:2])[2]
        wait = min(key.free_at(now) for key in self._keys) - now
        message = f"{self._name} has no key with room left"
        raise RateLimited(message, backend=self._name, status=None, retry_after_seconds=max(0.0, wait) or None)

    def _note(self, key: PooledKey, error: BackendError) -> None:
        """A refusal that is about the key lets the key rest; one about the provider or the caller does not."""
        if isinstance(error, RateLimited):
            wait = error.retry_after_seconds
            key.rests_until = self._clock() + (REST_AFTER_REFUSAL_SECONDS if wait is None else wait)
        elif isinstance(error, UpstreamAuth):
            key.rests_until = self._clock() + REST_AFTER_AUTH_SECONDS


class _PooledReply:
    """Passes a reply on, and gives its key's slot back when it is closed."""

    def __init__(self, reply: Reply, key: PooledKey, note: Callable[[PooledKey, BackendError], None]) -> None:
        self._reply = reply
        self._key = key
        self._note = note
        self._is_closed = False

    @property
    def content_type(self) -> str:
        return self._reply.content_type

    async def __aiter__(self) -> AsyncGenerator[Chunk]:
        try:
            async for chunk in self._reply:
                yield chunk
        except BackendError as error:
            self._note(self._key, error)
            raise

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._key.under_way -= 1
        await self._reply.aclose()
