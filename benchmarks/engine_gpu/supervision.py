"""Runs one measuring process after another: after a fault on a GPU, only a new process can go on."""

import faulthandler
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn

DONE, FAILED, CANNOT, LOST, OUT_OF_TIME = range(5)
# Each continues after the part in which the one before it ended. Overlapping launches may hang by themselves and in a
# captured step, and transformers may break off with each model; if eight processes end, the problem is elsewhere.
MOST_PROCESSES: Final = 8
# What the last part may take beyond the budget, and the least time in which a process can begin anything.
GRACE_SECONDS: Final = 20.0
LEAST_SECONDS: Final = 20.0


def supervise(measure: Callable[[Sequence[str], float], int], budget_seconds: float, *, resumes: bool = False) -> int:
    """Run processes until one has gone through its whole list, or the time is up; returns the last one's status.

    `measure` runs one with the given further arguments for at most the given seconds, and returns its status.
    """
    deadline = time.monotonic() + budget_seconds
    for _ in range(MOST_PROCESSES):
        left = deadline - time.monotonic()
        further = ["--budget-seconds", f"{left:.0f}"]
        status = measure([*further, "--resume"] if resumes else further, left + GRACE_SECONDS)
        if status in (DONE, FAILED, CANNOT):
            return status
        if deadline - time.monotonic() < LEAST_SECONDS:
            break
        print(f"The measuring process ended with status {status}; another goes on.", file=sys.stderr, flush=True)
        resumes = True
    return LOST


def run_process(command: Sequence[str], limit_seconds: float) -> int:
    """The status of a process; OUT_OF_TIME if it does not end within the limit."""
    try:
        return subprocess.run(command, check=False, timeout=limit_seconds).returncode
    except subprocess.TimeoutExpired:
        return OUT_OF_TIME


@contextmanager
def ended_after(seconds: float) -> Generator[None]:
    """Ends this process if the body takes longer, and prints each thread's stack: nothing else ends a kernel that
    hangs."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def leave(status: int) -> NoReturn:
    """End this process at once, even if a thread hangs or the GPU no longer responds."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
