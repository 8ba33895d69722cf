"""Idempotency keys of one process, in memory: forgotten after their time, the oldest first when they grow too large."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from gateway.kept_answers.idempotency import Found, Recorded

DAY_SECONDS = 86_400.0
OVERHEAD_BYTES = 512
"""About what one name costs beside its answer."""


@dataclass(frozen=True, slots=True)
class _Kept:
    found: Found
    kept_until: float

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES + (len(self.found.recorded.body) if self.found.recorded else 0)


class MemoryIdempotency:
    """See IdempotencyStore. A claim under way is never forgotten: its process will finish or abandon it."""

    lease_seconds = None

    def __init__(
        self,
        *,
        seconds: float = DAY_SECONDS,
        max_bytes: int = 64 << 20,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._monotonic = monotonic
        self._claims: dict[str, Found] = {}
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0

    async def claim(self, name: str, fingerprint: bytes) -> Found | None:
        if (running := self._claims.get(name)) is not None:
            return running
        self._forget()
        if (kept := self._kept.get(name)) is not None:
            return kept.found
        self._claims[name] = Found(fingerprint, None)
        return None

    async def renew(self, name: str, fingerprint: bytes) -> None:
        return None

    async def finish(self, name: str, fingerprint: bytes, recorded: Recorded) -> None:
        found = replace(self._claims.pop(name), recorded=recorded)
        self._kept[name] = kept = _Kept(found, self._monotonic() + self._seconds)
        self._bytes += kept.size
        self._forget()

    async def abandon(self, name: str, fingerprint: bytes) -> None:
        self._claims.pop(name, None)

    def _forget(self) -> None:
        """Oldest first, which is also the order in which they expire."""
        now = self._monotonic()
        while self._kept:
            name, oldest = next(iter(self._kept.items()))
            if oldest.kept_until > now and self._bytes <= self._max_bytes:
                return
            del self._kept[name]
            self._bytes -= oldest.size
