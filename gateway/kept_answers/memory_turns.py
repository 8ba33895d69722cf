"""Kept responses or conversations of one process, in memory."""

import time
from collections.abc import Callable

from gateway.kept_answers.expiring import Expiring
from gateway.kept_answers.record_store import Change

OVERHEAD_BYTES = 256
"""Approximate size of one record besides its value."""


class MemoryTurns:
    """See TurnStore and RecordStore."""

    def __init__(self, *, max_bytes: int = 64 << 20, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._turns: Expiring[bytes] = Expiring(_size, max_bytes=max_bytes, monotonic=monotonic)

    async def get(self, name: str, seconds: float | None) -> bytes | None:
        return self._turns.get(name, renewed_seconds=seconds)

    async def put(self, name: str, value: bytes, seconds: float, *, owner: str = "") -> None:
        self._turns.put(name, value, seconds, owner=owner)

    async def delete(self, name: str, *, owner: str = "") -> bool:
        return self._turns.drop(name)

    async def swap(self, change: Change, seconds: float) -> bool:
        if self._turns.get(change.name) != change.was:
            return False
        for name in change.renewed:  # before anything is put, so that none of them is evicted for another
            self._turns.get(name, renewed_seconds=seconds)
        for name in (*change.gone, *((change.name,) if change.value is None else ())):
            self._turns.drop(name)
        own = {} if change.value is None else {change.name: change.value}
        for name, value in {**change.beside, **own}.items():
            self._turns.put(name, value, seconds, owner=change.owner)
        return True


def _size(value: bytes) -> int:
    return OVERHEAD_BYTES + len(value)
