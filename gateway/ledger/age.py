"""How long the oldest unshipped entry has been waiting, to half a second. Pure: reads no clock."""

from collections import deque

from gateway.ledger.segments import Position

MARK_EVERY_SECONDS = 0.5


class AgeMarks:
    """Remembers when the journal reached which position: at most one mark per MARK_EVERY_SECONDS."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, Position]] = deque()

    def reached(self, position: Position, now: float) -> None:
        """The journal is durable up to `position`, which must never decrease between calls."""
        if self._marks and now - self._marks[-1][0] < MARK_EVERY_SECONDS:
            self._marks[-1] = (self._marks[-1][0], position)
        else:
            self._marks.append((now, position))

    def shipped(self, position: Position) -> None:
        """Everything before `position` has been shipped."""
        while self._marks and self._marks[0][1] <= position:
            self._marks.popleft()

    def oldest_seconds(self, now: float) -> float:
        return now - self._marks[0][0] if self._marks else 0.0
