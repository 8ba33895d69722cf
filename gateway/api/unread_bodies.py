"""Bodies of authenticated keys that are still arriving. Once all places are taken, no key may hold more than half of
them with bodies that do not arrive."""

import asyncio


class Unread:
    """One body. `timeout` is the timeout of the pending read, if there is one."""

    __slots__ = ("is_given_up", "key_id", "timeout")

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        self.is_given_up = False
        self.timeout: asyncio.Timeout | None = None

    def give_up(self) -> None:
        self.is_given_up = True
        if self.timeout is not None and not self.timeout.expired():
            self.timeout.reschedule(asyncio.get_running_loop().time())


class UnreadBodies:
    """By key, oldest first."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._of_key: dict[str, dict[Unread, None]] = {}

    def begin(self, key_id: str) -> Unread:
        body = Unread(key_id)
        self._of_key.setdefault(key_id, {})[body] = None
        return body

    def end(self, body: Unread) -> None:
        """The body has arrived, or is no longer waited for. Idempotent."""
        bodies = self._of_key.get(body.key_id, {})
        bodies.pop(body, None)
        if not bodies:
            self._of_key.pop(body.key_id, None)

    def make_room_for(self, key_id: str) -> bool:
        """Gives up the oldest body of a key that holds more than half of all places, for a request of another key."""
        whose = max(self._of_key, key=lambda one: len(self._of_key[one]), default=key_id)
        if whose == key_id or len(self._of_key[whose]) * 2 <= self._places:
            return False
        oldest = next(iter(self._of_key[whose]))
        self.end(oldest)
        oldest.give_up()
        return True
