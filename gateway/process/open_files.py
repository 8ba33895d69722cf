"""How many files and connections this process may have open at once, and how many calls that is."""

import contextlib
import resource

from gateway.errors import StateError

WANTED = (1 << 16, 10_240)
"""The second is the most that macOS allows where it says that there is no limit."""
OWN = 128
"""Journal, database, Redis, children's pipes, health checks and callers that wait between two calls, at least."""
LEAST = 64
"""A process that waits has some thirty open; below these it ends in the middle of something."""
PER_CALL = 2
"""The caller's connection and the provider's."""


def allow_open_files() -> int:
    """Ask for as many as the system lets us have, for this process and its children; how many that is.

    What a shell sets for itself (1,024, on macOS 256) is less than one worker needs for as many calls as it takes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in WANTED:
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            break
        with contextlib.suppress(ValueError, OSError):
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            break
    return open_files()


def require_open_files(files: int) -> None:
    """Raises StateError where a process can not even start with so few."""
    if files < LEAST:
        raise StateError(
            f"this process may open {files} files, and needs {LEAST} at least: raise the limit (`ulimit -Hn` shows it, "
            "systemd's LimitNOFILE, a container's --ulimit nofile)"
        )


def open_files() -> int:
    """The most that may be open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return WANTED[0] if soft == resource.RLIM_INFINITY else soft


def calls_within(files: int) -> int:
    """As many calls as may be under way without one failing for want of a descriptor; one at least."""
    return max(1, (files - OWN) // PER_CALL)


def connections_within(files: int) -> int:
    """As many callers' connections as leave a provider's for each of those calls."""
    return max(1, files - OWN - calls_within(files))
