"""A size-bounded in-memory store with expiry: the least recently used values are evicted first."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

Value = TypeVar("Value")
SHARE: Final = 4
"""An owner with more than 1/SHARE of a full store has its own values evicted for what it adds."""


@dataclass(slots=True)
class _Owned:
    names: OrderedDict[str, None] = field(default_factory=OrderedDict[str, None])
    bytes: int = 0


class Expiring(Generic[Value]):
    """Values by name, at most `max_bytes` in total as `size` counts them. Owners are optional."""

    def __init__(self, size: Callable[[Value], int], *, max_bytes: int, monotonic: Callable[[], float]) -> None:
        self._size = size
        self._max_bytes = max_bytes
        self._monotonic = monotonic
        self._kept: OrderedDict[str, tuple[Value, float, str]] = OrderedDict()
        self._owned: dict[str, _Owned] = {}
        self._bytes = 0

    def get(self, name: str, *, renewed_seconds: float | None = None) -> Value | None:
        """None if there is no such value or it has expired. `renewed_seconds` restarts its time to live."""
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
        """Replaces any value of that name; a value larger than the whole store is not kept."""
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
        """Whether there was a value, expired or not."""
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
