"""Mutual exclusion of processes through a locked file. Does not know what the file stands for."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from gateway.errors import StateError


@contextmanager
def sole_use(file: Path, *, of: str, advice: str) -> Generator[None]:
    """Holds the lock until the block ends; the kernel releases it if the process dies, however it dies.

    Raises StateError naming the process that holds it.
    """
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateError(f"cannot use {file}: {error.strerror}; make it writable") from error
    try:
        _lock(descriptor, file, of, advice)
        os.ftruncate(descriptor, 0)
        with suppress(OSError):  # on a full disk others get a less helpful error, nothing more
            os.pwrite(descriptor, str(os.getpid()).encode("ascii"), 0)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, file: Path, of: str, advice: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace")
        raise StateError(f"{of} is in use by process {holder or 'that just started'}; {advice}") from error
    except OSError as error:
        raise StateError(f"cannot lock {file}: {error.strerror}; use a local disk") from error
