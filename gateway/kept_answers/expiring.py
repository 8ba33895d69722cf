"""What one process keeps in its memory for a time: the least recently used go when it grows too large."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Expiring(Generic[Value]):
    """Values by name, all of them together of at most `max_bytes` as `size` counts them."""

    def __init__(self, size: Callable[[Value], int], *, max_bytes: int, monotonic: Callable[[], float]) -> None:
        self._size = size
        self._max_bytes = max_bytes
        self._monotonic = monotonic
        self._kept: OrderedDict[str, tuple[Value, float]] = OrderedDict()
        self._bytes = 0

    def get(self, name: str, *, renewed_seconds: float | None = None) -> Value | None:
        """None where nothing is kept under that name, or its time is over. It may be given so much time anew."""
        found = self._kept.get(name)
        if found is None:
            return None
        value, until = found
        now = self._monotonic()
        if until <= now:
            self.drop(name)
            return None
        if renewed_seconds is not None:
            self._kept[name] = (value, now + renewed_seconds)
        self._kept.move_to_end(name)
        return value

    def put(self, name: str, value: Value, seconds: float) -> None:
        """In place of whatever had that name."""
        self.drop(name)
        self._kept[name] = (value, self._monotonic() + seconds)
        self._bytes += self._size(value)
        while self._bytes > self._max_bytes:
            self.drop(next(iter(self._kept)))

    def drop(self, name: str) -> bool:
        """Whether there was anything, its time over or not."""
        found = self._kept.pop(name, None)
        if found is None:
            return False
        self._bytes -= self._size(found[0])
        return True
