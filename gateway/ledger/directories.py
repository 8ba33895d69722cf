"""One journal directory per worker process, claimed by a file lock.

A worker claims the first numbered directory that is free. Directories left over (fewer workers run than before) are
adopted by whoever finds them, shipped and removed. The lock is released when its process ends, however it dies; a lock
on a directory that was removed meanwhile does not count.
"""

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.errors import StateError

MAX_WORKERS = 1024
LOCK = "lock"
TRIES = 100


@dataclass(slots=True)
class Claim:
    """A directory that this process owns until `release` or its own end."""

    path: Path
    _descriptor: int

    def remove(self) -> None:
        """Delete the directory and release it. Only when all its entries are in the database.

        The segments first: without the note, what is left of them would be shipped again, however old it is.
        """
        for file in sorted(self.path.iterdir(), key=lambda file: file.suffix != ".seg"):
            if file.name != LOCK:
                file.unlink()
        (self.path / LOCK).unlink()
        self.path.rmdir()
        self.release()

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def claim_directory(root: Path) -> Claim:
    """The first free directory below `root`, created if needed. Raises StateError when none can be claimed."""
    for number in range(MAX_WORKERS):
        if claim := _try_claim(root / f"worker-{number:04d}"):
            return claim
    raise StateError(f"all {MAX_WORKERS} journal directories under {root} are in use")


def claim_abandoned(root: Path) -> Iterator[Claim]:
    """Claims each existing directory that nobody holds; the caller ships its contents and releases it."""
    for path in sorted(root.glob("worker-*")):
        if claim := _try_claim(path):
            yield claim


def _try_claim(path: Path) -> Claim | None:
    for _ in range(TRIES):
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # removed between the two calls
        except OSError as error:
            raise StateError(
                f"cannot use {path} for the journal: {error.strerror}; give it to the user that runs this, or set "
                "BREAKEVEN_HOME to a folder of that user's"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            os.close(descriptor)
            raise StateError(f"cannot lock {path}: {error.strerror}") from error
        if _is_still_there(path, descriptor):
            return Claim(path, descriptor)
        os.close(descriptor)
    raise StateError(f"cannot lock {path}: it is removed again and again; is another program deleting it?")


def _is_still_there(path: Path, descriptor: int) -> bool:
    """Whether the locked file is still the one at `path`, which others would try to lock."""
    try:
        return os.path.samestat(os.stat(path / LOCK), os.fstat(descriptor))
    except FileNotFoundError:
        return False
