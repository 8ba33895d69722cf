"""What servers' refusals taught, so that later requests need not be refused first. Knows no format.

Each is forgotten after an hour, because servers are updated, and the oldest beyond a number, because callers choose
some of the keys.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from backends.formats.json_splice import NotAnObject, find_members

FORGOTTEN_SECONDS: Final = 3600.0
MOST: Final = 1000
OfTools = tuple[str, bytes]
Monotonic = Callable[[], float]
Key = TypeVar("Key")
Value = TypeVar("Value")


class Learned(Generic[Key, Value]):
    """Values by what they hold for: a model, and what else a refusal depended on."""

    def __init__(self, monotonic: Monotonic = time.monotonic) -> None:
        self._monotonic = monotonic
        self._known: OrderedDict[Key, tuple[Value, float]] = OrderedDict()

    def __len__(self) -> int:
        """0 for nearly every server, and the key of what one may have taught is not even computed."""
        return len(self._known)

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None

    def get(self, key: Key) -> Value | None:
        found = self._known.get(key)
        if found is None:
            return None
        if self._monotonic() - found[1] < FORGOTTEN_SECONDS:
            return found[0]
        del self._known[key]
        return None

    def put(self, key: Key, value: Value) -> None:
        """What was known since before stays known no longer for that."""
        since = found[1] if (found := self._known.pop(key, None)) else self._monotonic()
        self._known[key] = value, since
        if len(self._known) > MOST:
            self._known.popitem(last=False)

    def forget(self, key: Key) -> None:
        """For what turned out not to help."""
        self._known.pop(key, None)


def of_tools(model: str, body: bytes) -> OfTools | None:
    """The key of what a refusal said of a request's tools, which a client sends with each. None without any."""
    try:
        tools = find_members(body).get("tools")
    except NotAnObject:  # its provider's to refuse
        return None
    return tools and (model, hashlib.blake2b(tools.of(body), digest_size=16).digest())
