"""The concurrency places of one request in progress, reference-counted."""

from collections.abc import Awaitable

from gateway.limits.counters import Counters


class Stay:
    """Created with one holder."""

    def __init__(self, name: str, counters: Counters) -> None:
        self._name = name
        self._counters = counters
        self._holders = 1

    def hold(self) -> None:
        """Adds a holder, who will also let go."""
        self._holders += 1

    def let_go(self) -> Awaitable[object] | None:
        """Drops a holder. The last one frees the places: here at once, elsewhere when the returned awaitable is
        done."""
        self._holders -= 1
        return None if self._holders else self._counters.leave(self._name)
