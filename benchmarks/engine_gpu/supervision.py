"""One measuring process after another: a fault on a GPU stays with its process, so the next part needs a new one."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

DONE, FAILED, CANNOT, LOST = range(4)
# Each begins after the part that the one before it died in; a machine on which five die has another problem.
MOST_PROCESSES: Final = 5


def supervise(measure: Callable[[Sequence[str]], int], budget_seconds: float, *, resumes: bool = False) -> int:
    """Let processes measure until one comes to the end of its list; returns its status.

    `measure` runs one with these further arguments and returns how it ended.
    """
    deadline = time.monotonic() + budget_seconds
    for _ in range(MOST_PROCESSES):
        left = ["--budget-seconds", f"{deadline - time.monotonic():.0f}"]
        status = measure([*left, "--resume"] if resumes else left)
        if status in (DONE, FAILED, CANNOT):
            return status
        print(f"The measuring process ended with status {status}; another goes on.", file=sys.stderr, flush=True)
        resumes = True
    return FAILED
