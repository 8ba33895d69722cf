"""Two clocks: the time of day, for booking and expiry, and a seconds counter that clock adjustments do not affect."""

import time
from collections.abc import Callable

BELIEVED_AFTER_SECONDS = 86_400.0
DRIFT_US = 60_000_000
_UNSTEPPED: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


def unstepped_seconds() -> float:
    """Seconds since an arbitrary moment. On Linux they include time during which the machine was suspended."""
    return time.clock_gettime(_UNSTEPPED)


class PatientClock:
    """Time of day for irreversible actions: a forward step is believed only after a day, a backward step at once."""

    def __init__(self, now_us: Callable[[], int] = now_us, unstepped: Callable[[], float] = unstepped_seconds) -> None:
        self._now_us = now_us
        self._unstepped = unstepped
        self._offset_us = now_us() - round(unstepped() * 1e6)
        self._ahead_since: float | None = None

    def __call__(self) -> int:
        """Microseconds since the epoch. Call about once an hour: steps of the clock are noticed only by calling."""
        now_us, seconds = self._now_us(), self._unstepped()
        offset_us = now_us - round(seconds * 1e6)
        if offset_us <= self._offset_us + DRIFT_US:
            self._offset_us, self._ahead_since = offset_us, None
        elif self._ahead_since is None:
            self._ahead_since = seconds
        elif seconds - self._ahead_since >= BELIEVED_AFTER_SECONDS:
            self._offset_us, self._ahead_since = offset_us, None
        return round(seconds * 1e6) + self._offset_us
