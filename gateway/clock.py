"""The time of day, as everything that books or expires is told it, and seconds that no step of it changes."""

import time

_UNSTEPPED: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


def unstepped_seconds() -> float:
    """Since some moment; they go on while the machine sleeps, where the system can tell (Linux)."""
    return time.clock_gettime(_UNSTEPPED)
