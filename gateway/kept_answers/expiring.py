"""What one process keeps in its memory for a time: the least recently used go when it grows too large."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

Value = TypeVar("Value")
SHARE: Final = 4
"""An owner who has more than this part of a full store makes room for what it adds with its own."""


@dataclass(slots=True)
class _Owned:
    names: OrderedDict[str, None] = field(default_factory=OrderedDict[str, None])
    bytes: int = 0


class Expiring(Generic[Value]):
    """Values by name, all of them together of at most `max_bytes` as `size` counts them. Those without an owner are
    nobody's."""

    def __init__(self, size: Callable[[Value], int], *, max_bytes: int, monotonic: Callable[[], float]) -> None:
        self._size = size
        self._max_bytes = max_bytes
        self._monotonic = monotonic
        self._kept: OrderedDict[str, tuple[Value, float, str]] = OrderedDict()
        self._owned: dict[str, _Owned] = {}
        self._bytes = 0

    def get(self, name: str, *, renewed_seconds: float | None = None) -> Value | None:
        """None where nothing is kept under that name, or its time is over. It may be given so much time anew."""
        found = self._kept.get(name)
        if found is None:
            return None
        value, until, owner = found
        now = self._monotonic()
        if until <= now:
            self.drop(name)
            return None
        if renewed_seconds is not None:
            self._kept[name] = (value, now + renewed_seconds, owner)
        self._kept.move_to_end(name)
        if owner:
            self._owned[owner].names.move_to_end(name)
        return value

    def put(self, name: str, value: Value, seconds: float, *, owner: str = "") -> None:
        """In place of whatever had that name; or not, if it is larger than all that there is room for."""
        self.drop(name)
        size = self._size(value)
        if size > self._max_bytes:
            return
        while self._bytes + size > self._max_bytes:
            self.drop(self._first_to_go(owner))
        self._kept[name] = (value, self._monotonic() + seconds, owner)
        self._bytes += size
        if owner:
            own = self._owned.setdefault(owner, _Owned())
            own.names[name] = None
            own.bytes += size

    def drop(self, name: str) -> bool:
        """Whether there was anything, its time over or not."""
        found = self._kept.pop(name, None)
        if found is None:
            return False
        value, _, owner = found
        size = self._size(value)
        self._bytes -= size
        if owner:
            own = self._owned[owner]
            del own.names[name]
            own.bytes -= size
            if not own.names:
                del self._owned[owner]
        return True

    def _first_to_go(self, owner: str) -> str:
        own = self._owned.get(owner)
        if own is None or own.bytes <= self._max_bytes // SHARE:
            return next(iter(self._kept))
        return next(iter(own.names))
