"""One measuring process after another: a fault on a GPU stays with its process, so the next part needs a new one."""

import faulthandler
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn

DONE, FAILED, CANNOT, LOST, OUT_OF_TIME = range(5)
# Each begins after the part that the one before it died in or was spoilt by. Launches that overlap may hang alone and
# in a captured step, and transformers break off with each model; a machine on which eight end has another problem.
MOST_PROCESSES: Final = 8
# What the last part may take beyond the budget, and what a process needs to begin anything.
GRACE_SECONDS: Final = 20.0
LEAST_SECONDS: Final = 20.0


def supervise(measure: Callable[[Sequence[str], float], int], budget_seconds: float, *, resumes: bool = False) -> int:
    """Let processes measure until one comes to the end of its list, or the time is up; returns the last one's status.

    `measure` runs one with these further arguments for at most so many seconds, and returns how it ended.
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
    """The status of a process that has so much time; OUT_OF_TIME where it does not end by itself."""
    try:
        return subprocess.run(command, check=False, timeout=limit_seconds).returncode
    except subprocess.TimeoutExpired:
        return OUT_OF_TIME


@contextmanager
def ended_after(seconds: float) -> Generator[None]:
    """Ends this process where what is inside takes longer, and says where each thread stood: nothing else would end a
    kernel that hangs."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def leave(status: int) -> NoReturn:
    """End this process at once: a thread that hangs would keep it, and so would a GPU that computes nothing more."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
