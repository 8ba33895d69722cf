"""Several keys of one provider as one backend: each with its own limits. Pure but for its clock.

The pool knows which keys have capacity left. The gateway decides which one a call uses, and when a refused key rests
(`gateway/upstreams/load.py`): a pool never retries by itself.
"""

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace

from backends.chat_counts import CountsChats
from backends.errors import RateLimited, UpstreamRejected
from backends.model_lists import ListsModels, ModelList
from backends.protocol import Backend, BackendHealth, Call, Chunk, KeepsResponses, Reply

WINDOW_SECONDS = 60.0
NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What the provider allows one key; None means unlimited."""

    requests_per_minute: int | None = None
    concurrent_requests: int | None = None


@dataclass(slots=True)
class PooledKey:
    """One key: the backend that holds it, its limits, and what is under way. Only `label` may appear in logs."""

    label: str
    backend: Backend
    limits: KeyLimits = field(default_factory=KeyLimits)
    started: deque[float] = field(default_factory=deque[float])
    under_way: int = 0

    def free_at(self, now: float) -> float:
        """The earliest time (of the pool's clock) at which this key may be used, concurrency apart."""
        while self.started and self.started[0] <= now - WINDOW_SECONDS:
            self.started.popleft()
        limit = self.limits.requests_per_minute
        is_full = limit is not None and len(self.started) >= limit
        return self.started[0] + WINDOW_SECONDS if is_full and self.started else now

    def room(self, now: float) -> float | None:
        """The share of the key's limit that is free, from 0 to 1; None if it may not be used now."""
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
        self._keys = {key.label: key for key in keys}
        if len(self._keys) != len(keys):
            raise ValueError("two keys of a pool have the same label")
        self._clock = clock

    @property
    def name(self) -> str:
        return self._name

    @property
    def is_simulated(self) -> bool:
        return any(key.backend.is_simulated for key in self._keys.values())

    def labels(self) -> Sequence[str]:
        """Every key, in the order of the configuration."""
        return tuple(self._keys)

    def labels_by_room(self) -> Sequence[str]:
        """The keys that may be used now, most room first; if all are full, the one that is free soonest."""
        now = self._clock()
        rooms = [(room, -len(key.started), key) for key in self._keys.values() if (room := key.room(now)) is not None]
        if not rooms:
            return (min(self._keys.values(), key=lambda key: key.free_at(now)).label,)
        return [key.label for _, _, key in sorted(rooms, key=lambda item: item[:2], reverse=True)]

    def wait_seconds(self) -> float:
        """Seconds until some key is below its requests per minute; 0 if one is."""
        now = self._clock()
        return max(0.0, min(key.free_at(now) for key in self._keys.values()) - now)

    async def open(self, call: Call) -> Reply:
        """See Backend.open. Raises RateLimited, without sending anything, if the key has no room."""
        now = self._clock()
        key = self._keys[call.key or self.labels_by_room()[0]]
        if key.room(now) is None:
            wait = self.wait_seconds()
            raise RateLimited(f"{self._name} has no key with room left", status=None, retry_after_seconds=wait or None)
        key.started.append(now)
        key.under_way += 1
        try:
            return _PooledReply(await key.backend.open(call), key)
        except BaseException:
            key.under_way -= 1
            raise

    @property
    def counts_chats(self) -> bool:
        """See CountsChats; the endpoint is the same for all keys."""
        inner = next(iter(self._keys.values())).backend
        return isinstance(inner, CountsChats) and inner.counts_chats

    async def count_chat(self, call: Call) -> int | None:
        """See CountsChats. Uses the key with the most room, and takes up none of it."""
        inner = self._keys[self.labels_by_room()[0]].backend
        return await inner.count_chat(call) if isinstance(inner, CountsChats) else None

    async def stored(self, method: str, path: str) -> bytes | None:
        """See KeepsResponses. The keys may belong to several accounts: the first that knows the response answers."""
        unknown: UpstreamRejected | None = None
        for key in self._keys.values():
            if not isinstance(key.backend, KeepsResponses):
                continue
            try:
                return await key.backend.stored(method, path)
            except UpstreamRejected as error:
                if error.status != NOT_FOUND:
                    raise
                unknown = error
        if unknown is not None:
            raise unknown
        return None

    async def health(self) -> BackendHealth:
        """The first key's health: the endpoint is the same for all."""
        return await next(iter(self._keys.values())).backend.health()

    async def model_lists(self) -> Sequence[ModelList]:
        """See ListsModels."""
        return [
            replace(found, key=key.label)
            for key in self._keys.values()
            if isinstance(key.backend, ListsModels)
            for found in await key.backend.model_lists()
        ]

    async def aclose(self) -> None:
        for key in self._keys.values():
            await key.backend.aclose()


class _PooledReply:
    """Gives its key's slot back when it is closed."""

    def __init__(self, reply: Reply, key: PooledKey) -> None:
        self._reply = reply
        self._key = key
        self._is_closed = False

    @property
    def content_type(self) -> str:
        return self._reply.content_type

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return aiter(self._reply)

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._key.under_way -= 1
        await self._reply.aclose()
