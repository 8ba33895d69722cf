"""The time of day, as everything that books or expires is told it."""

import time


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000
