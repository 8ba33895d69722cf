"""Kept responses of one process, in memory."""

import time
from collections.abc import Callable

from gateway.kept_answers.expiring import Expiring

OVERHEAD_BYTES = 256
"""About what a turn's name and place cost."""


class MemoryTurns:
    """See TurnStore."""

    def __init__(self, *, max_bytes: int = 64 << 20, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._turns: Expiring[bytes] = Expiring(_size, max_bytes=max_bytes, monotonic=monotonic)

    async def get(self, name: str, seconds: float) -> bytes | None:
        return self._turns.get(name, renewed_seconds=seconds)

    async def put(self, name: str, value: bytes, seconds: float) -> None:
        self._turns.put(name, value, seconds)

    async def delete(self, name: str) -> bool:
        return self._turns.drop(name)


def _size(value: bytes) -> int:
    return OVERHEAD_BYTES + len(value)
