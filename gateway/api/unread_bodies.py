"""Bodies of known keys that are on their way. While there is room nobody is bound; then no key keeps more than half of
all places with bodies that do not come."""

import asyncio


class Unread:
    """One body. `timeout` is what it is waited for under, while it is."""

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
    """Of all keys, each one's oldest first."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._of_key: dict[str, dict[Unread, None]] = {}

    def begin(self, key_id: str) -> Unread:
        body = Unread(key_id)
        self._of_key.setdefault(key_id, {})[body] = None
        return body

    def end(self, body: Unread) -> None:
        """It is here, or not waited for any more; once more does no harm."""
        bodies = self._of_key.get(body.key_id, {})
        bodies.pop(body, None)
        if not bodies:
            self._of_key.pop(body.key_id, None)

    def make_room_for(self, key_id: str) -> bool:
        """Give up the oldest of whoever has more than half of all places, for anybody else."""
        whose = max(self._of_key, key=lambda one: len(self._of_key[one]), default=key_id)
        if whose == key_id or len(self._of_key[whose]) * 2 <= self._places:
            return False
        oldest = next(iter(self._of_key[whose]))
        self.end(oldest)
        oldest.give_up()
        return True
