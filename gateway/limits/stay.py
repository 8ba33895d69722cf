"""One request under way, in the places that it takes, until whoever needs it last lets go."""

from collections.abc import Awaitable

from gateway.limits.counters import Counters


class Stay:
    """Held once from the beginning."""

    def __init__(self, name: str, counters: Counters) -> None:
        self._name = name
        self._counters = counters
        self._holders = 1

    def hold(self) -> None:
        """Somebody else needs it too, and will let go."""
        self._holders += 1

    def let_go(self) -> Awaitable[object] | None:
        """Its places are free at once here, and everywhere once what is returned is done, if anything is."""
        self._holders -= 1
        return None if self._holders else self._counters.leave(self._name)
