"""The disk operations that the journal needs, and the local implementation. Knows nothing of records."""

import errno
import fcntl
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from gateway.whole_file import sync_names

ZEROS = bytes(1 << 20)
SHORTEST_PAUSE_SECONDS = 0.001
NOTE = "shipped"


def sync_content(descriptor: int) -> None:
    """Make what was written survive power loss; the file's timestamps may not. Raises OSError."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # macOS has no fdatasync, and its fsync stops at the drive's cache
    else:
        os.fdatasync(descriptor)


class DiskFile(Protocol):
    """A file of fixed size. Every method may raise OSError."""

    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes:
        """The current bytes, synced or not; fewer than `length` at the end of the file, or before a page that the disk
        cannot read: an OSError with EIO where it begins."""
        ...

    def write(self, offset: int, content: bytes) -> None:
        """On return the bytes are visible to readers and survive the death of this process, but not power loss."""
        ...

    def sync(self) -> None:
        """Everything written before this call survives power loss when it returns. Never call again after an error."""
        ...

    def fileno(self) -> int:
        """The file descriptor. Raises OSError if there is none."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """One directory of fixed-size files. Every method may raise OSError."""

    def names(self) -> list[str]:
        """Names of the files whose creation was completed, in no particular order."""
        ...

    def create(self, name: str, size: int, *, is_urgent: Callable[[], bool]) -> None:
        """Create a file of `size` zeros; on return the file, its zeros and its name survive power loss.

        While `is_urgent` says no, the disk is left idle half of the time for others. An error leaves nothing behind.
        """
        ...

    def open(self, name: str) -> DiskFile: ...

    def remove(self, name: str) -> None:
        """On return the file is gone, even after power loss."""
        ...

    def note(self, content: bytes) -> None:
        """Overwrite the note with a few bytes, always of the same length. Survives process death at once."""
        ...

    def noted(self) -> bytes:
        """The last note; after power loss it may be an older one, or garbage."""
        ...


def sync_all(files: Sequence[DiskFile]) -> None:
    """Sync the files in order, stopping at the first error. Raises OSError."""
    for file in files:
        file.sync()


class LocalFile:
    """A file of a local file system."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._size = os.fstat(self._descriptor).st_size

    @property
    def size(self) -> int:
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    def write(self, offset: int, content: bytes) -> None:
        written = os.pwrite(self._descriptor, content, offset)
        while written < len(content):
            written += os.pwrite(self._descriptor, content[written:], offset + written)

    def sync(self) -> None:
        # The file's size never changes, so only its data needs syncing.
        sync_content(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


class LocalDisk:
    """A directory of a local file system. Network file systems do not honour the guarantees of `sync`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for leftover in directory.glob("*.new"):
            leftover.unlink()

    def names(self) -> list[str]:
        return [path.name for path in self._directory.iterdir() if path.suffix == ".seg"]

    def create(self, name: str, size: int, *, is_urgent: Callable[[], bool]) -> None:
        path = self._directory / (name + ".new")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            self._write_zeros(descriptor, size, is_urgent=is_urgent)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(descriptor)
        path.rename(self._directory / name)
        sync_names(self._directory)

    @staticmethod
    def _write_zeros(descriptor: int, size: int, *, is_urgent: Callable[[], bool]) -> None:
        # Real zeros, not fallocate: a write into an unwritten extent costs a metadata commit at the next sync. Synced
        # in pieces with pauses, so that a settlement syncing another file meanwhile hardly ever waits for this.
        done = 0
        while done < size:
            began = time.monotonic()
            written = os.write(descriptor, ZEROS[: size - done])
            if written == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            done += written
            sync_content(descriptor)
            if not is_urgent():
                time.sleep(max(time.monotonic() - began, SHORTEST_PAUSE_SECONDS))
        os.fsync(descriptor)

    def open(self, name: str) -> LocalFile:
        return LocalFile(self._directory / name)

    def remove(self, name: str) -> None:
        (self._directory / name).unlink(missing_ok=True)  # somebody who needed room may have deleted it
        sync_names(self._directory)

    def note(self, content: bytes) -> None:
        descriptor = os.open(self._directory / NOTE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, content, 0)
        finally:
            os.close(descriptor)

    def noted(self) -> bytes:
        try:
            return (self._directory / NOTE).read_bytes()
        except FileNotFoundError:
            return b""
