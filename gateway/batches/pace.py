"""When a batch stops waiting for a busy model: late enough to use quiet hours, early enough to finish in time. Pure."""

from typing import Final

SAFETY: Final = 2.0
"""The time reserved for the remaining lines is this multiple of the estimate."""
LEAST_SHARE: Final = 0.1
"""The part of the window that is reserved in any case."""
USUAL_SECONDS: Final = 10.0
"""Assumed time per line until one has been answered."""


class Pace:
    """How long lines have taken so far, from start to result."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._seconds = self._lines = 0.0

    def note(self, seconds: float) -> None:
        """Records the time of one line."""
        self._seconds += seconds
        self._lines += 1

    def must_hurry(self, now_us: int, *, created_at_us: int, deadline_us: int, lines_left: int) -> bool:
        """Whether the remaining lines should go to any model available, as they might not finish in time otherwise."""
        seconds_each = self._seconds / self._lines if self._lines else USUAL_SECONDS
        needed_us = SAFETY * 1e6 * lines_left * seconds_each / self._at_once
        return now_us >= deadline_us - max(needed_us, LEAST_SHARE * (deadline_us - created_at_us))
