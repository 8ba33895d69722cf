"""The few things the journal asks of a disk, and the real one. Knows nothing of records."""

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
    """What was written survives a loss of power; the file's times may not. Raises OSError."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # macOS has no fdatasync, and its fsync stops at the drive's cache
    else:
        os.fdatasync(descriptor)


class DiskFile(Protocol):
    """A file of fixed size. Every method may raise OSError."""

    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes:
        """What a reader sees now, synced or not; shorter at the end of the file."""
        ...

    def write(self, offset: int, content: bytes) -> None:
        """Visible to readers and safe from the death of this process when it returns; not from power loss."""
        ...

    def sync(self) -> None:
        """Everything written before this call survives power loss when it returns. Never call again after an error."""
        ...

    def fileno(self) -> int:
        """The descriptor by which the kernel knows it; an OSError where it does not."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """One directory of fixed-size files. Every method may raise OSError."""

    def names(self) -> list[str]:
        """Names of the files that were completely created, in no order."""
        ...

    def create(self, name: str, size: int, *, is_urgent: Callable[[], bool]) -> None:
        """Make a file of `size` zeros; file, zeros and name survive power loss when it returns.

        While it is not urgent, it leaves the disk to others half of the time. An error leaves nothing behind.
        """
        ...

    def open(self, name: str) -> DiskFile: ...

    def remove(self, name: str) -> None:
        """The file is gone, also after power loss, when it returns."""
        ...

    def note(self, content: bytes) -> None:
        """Keep a few bytes, always as many, in place of the last ones: at once safe from the death of this process."""
        ...

    def noted(self) -> bytes:
        """What was noted last; after power loss what was noted before that, or anything."""
        ...


def sync_all(files: Sequence[DiskFile]) -> None:
    """In this order; at the first error the rest are left alone. Raises OSError."""
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
        # The file never changes its size, so its data is all there is to sync.
        sync_content(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        os.close(self._descriptor)


class LocalDisk:
    """A directory of a local file system. Network file systems do not keep the promises of `sync`."""

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
        # piece by piece with pauses, so that a settlement that syncs another file meanwhile hardly ever waits for it.
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
        (self._directory / name).unlink()
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
