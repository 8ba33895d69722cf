"""Cached answers of one process, in memory."""

import time
from collections.abc import Callable

from gateway.kept_answers.expiring import Expiring
from gateway.kept_answers.response_cache import CachedAnswer

OVERHEAD_BYTES = 256
"""Approximate size of one chunk or answer besides its payload."""


class MemoryResponses:
    """See ResponseStore."""

    def __init__(self, *, max_bytes: int = 64 << 20, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._answers: Expiring[CachedAnswer] = Expiring(_size, max_bytes=max_bytes, monotonic=monotonic)

    async def get(self, name: str) -> CachedAnswer | None:
        return self._answers.get(name)

    async def put(self, name: str, answer: CachedAnswer, seconds: int, *, owner: str = "") -> None:
        self._answers.put(name, answer, seconds, owner=owner)


def _size(answer: CachedAnswer) -> int:
    return OVERHEAD_BYTES + sum(OVERHEAD_BYTES + len(chunk.payload) for chunk in answer.chunks)
