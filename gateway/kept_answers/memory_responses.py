"""Cached answers of one process, in memory: the least recently used go when they grow too large."""

import time
from collections import OrderedDict
from collections.abc import Callable

from gateway.kept_answers.response_cache import CachedAnswer

OVERHEAD_BYTES = 256
"""About what one chunk or one answer costs beside its payload."""


class MemoryResponses:
    """See ResponseStore."""

    def __init__(self, *, max_bytes: int = 64 << 20, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._monotonic = monotonic
        self._answers: OrderedDict[str, tuple[CachedAnswer, float]] = OrderedDict()
        self._bytes = 0

    async def get(self, name: str) -> CachedAnswer | None:
        found = self._answers.get(name)
        if found is None:
            return None
        answer, until = found
        if until <= self._monotonic():
            self._drop(name)
            return None
        self._answers.move_to_end(name)
        return answer

    async def put(self, name: str, answer: CachedAnswer, seconds: int) -> None:
        if name in self._answers:
            self._drop(name)
        self._answers[name] = (answer, self._monotonic() + seconds)
        self._bytes += _size(answer)
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._answers)))

    def _drop(self, name: str) -> None:
        answer, _ = self._answers.pop(name)
        self._bytes -= _size(answer)


def _size(answer: CachedAnswer) -> int:
    return OVERHEAD_BYTES + sum(OVERHEAD_BYTES + len(chunk.payload) for chunk in answer.chunks)
