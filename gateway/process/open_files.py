"""How many files and connections this process may have open, and how many calls that allows."""

import contextlib
import resource

from gateway.errors import StateError

WANTED = (1 << 16, 10_240)
"""The second is macOS' maximum even where it reports no limit."""
OWN = 128
"""At least: journal, database, Redis, pipes to children, health checks and callers between two calls."""
LEAST = 64
"""An idle process has some thirty open; with fewer than this it would fail at an arbitrary point."""
PER_CALL = 2
"""The caller's connection and the provider's."""


def allow_open_files() -> int:
    """Raise the limit as far as the system allows, for this process and its children; returns the limit.

    The defaults of shells (1,024; 256 on macOS) are too low for the number of calls one worker accepts.
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
    """Raises StateError if a process cannot even start with so few."""
    if files < LEAST:
        raise StateError(
            f"this process may open {files} files, and needs {LEAST} at least: raise the limit (`ulimit -Hn` shows it, "
            "systemd's LimitNOFILE, a container's --ulimit nofile)"
        )


def open_files() -> int:
    """The current limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return WANTED[0] if soft == resource.RLIM_INFINITY else soft


def calls_within(files: int) -> int:
    """Calls that can be in progress without running out of descriptors; at least one."""
    return max(1, (files - OWN) // PER_CALL)


def connections_within(files: int) -> int:
    """Callers' connections that leave a descriptor for a provider's connection per call."""
    return max(1, files - OWN - calls_within(files))
