"""One process at a time: a file that is locked for as long as a process uses what it stands for. Knows not what."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from gateway.errors import StateError


@contextmanager
def sole_use(file: Path, *, of: str, advice: str) -> Generator[None]:
    """Nobody else is here until this ends; the kernel lets go when the process dies, however it dies.

    Raises StateError, with the process that has it, when somebody else is.
    """
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateError(f"cannot use {file}: {error.strerror}; make it writable") from error
    try:
        _lock(descriptor, file, of, advice)
        os.ftruncate(descriptor, 0)
        with suppress(OSError):  # no room: whoever is refused hears less, and we what the room is needed for
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
