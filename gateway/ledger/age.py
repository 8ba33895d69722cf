"""Since when the oldest entry that is not shipped waits, to the half second. Pure: reads no clock."""

from collections import deque

from gateway.ledger.segments import Position

MARK_EVERY_SECONDS = 0.5


class AgeMarks:
    """Remembers when the journal had reached where, in as few marks as that takes."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, Position]] = deque()

    def reached(self, position: Position, now: float) -> None:
        """The journal is durable up to here; call with rising positions."""
        if self._marks and now - self._marks[-1][0] < MARK_EVERY_SECONDS:
            self._marks[-1] = (self._marks[-1][0], position)
        else:
            self._marks.append((now, position))

    def shipped(self, position: Position) -> None:
        """Everything before it waits no more."""
        while self._marks and self._marks[0][1] <= position:
            self._marks.popleft()

    def oldest_seconds(self, now: float) -> float:
        return now - self._marks[0][0] if self._marks else 0.0
