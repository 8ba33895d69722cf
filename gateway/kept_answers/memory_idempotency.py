"""Idempotency keys of one process, in memory, with expiry. When full, the least recently used are evicted."""

import time
from collections.abc import Callable
from dataclasses import replace

from gateway.kept_answers.expiring import Expiring
from gateway.kept_answers.idempotency import Found, Recorded

DAY_SECONDS = 86_400.0
OVERHEAD_BYTES = 512
"""Approximate size of one entry besides its answer."""


class MemoryIdempotency:
    """See IdempotencyStore. A claim in progress is never evicted: its process will finish or abandon it."""

    lease_seconds = None

    def __init__(
        self,
        *,
        seconds: float = DAY_SECONDS,
        max_bytes: int = 64 << 20,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._claims: dict[str, Found] = {}
        self._kept: Expiring[Found] = Expiring(_size, max_bytes=max_bytes, monotonic=monotonic)

    async def claim(self, name: str, fingerprint: bytes) -> Found | None:
        found = self._claims.get(name) or self._kept.get(name)
        if found is None:
            self._claims[name] = Found(fingerprint, None)
        return found

    async def renew(self, name: str, fingerprint: bytes) -> None:
        return None

    async def finish(self, name: str, fingerprint: bytes, recorded: Recorded, *, owner: str = "") -> None:
        found = replace(self._claims.pop(name), recorded=recorded)
        self._kept.put(name, found, self._seconds, owner=owner)

    async def abandon(self, name: str, fingerprint: bytes) -> None:
        self._claims.pop(name, None)


def _size(found: Found) -> int:
    return OVERHEAD_BYTES + (len(found.recorded.body) if found.recorded else 0)
