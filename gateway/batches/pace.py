"""When a batch stops waiting for a busy model: late enough to use every quiet hour, early enough to be done. Pure."""

from typing import Final

SAFETY: Final = 2.0
"""So many times as long as it should take is kept for what is left."""
LEAST_SHARE: Final = 0.1
"""Of the window is kept in any case."""
USUAL_SECONDS: Final = 10.0
"""A line takes, where none has been answered yet."""


class Pace:
    """How long lines have taken so far, from when they began until they had a result."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._seconds = self._lines = 0.0

    def note(self, seconds: float) -> None:
        """One more line has its result."""
        self._seconds += seconds
        self._lines += 1

    def must_hurry(self, now_us: int, *, created_at_us: int, deadline_us: int, lines_left: int) -> bool:
        """Whether the lines that are left should go wherever they can, or they might not be answered in time."""
        seconds_each = self._seconds / self._lines if self._lines else USUAL_SECONDS
        needed_us = SAFETY * 1e6 * lines_left * seconds_each / self._at_once
        return now_us >= deadline_us - max(needed_us, LEAST_SHARE * (deadline_us - created_at_us))
