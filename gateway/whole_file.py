"""Atomic file replacement: readers see the old content or the new, never a mixture."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


def sync_names(directory: Path) -> None:
    """Makes earlier creations, renames and removals in the directory survive a power loss. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes, *, lasts: bool = True) -> None:
    """As `whole_file`, for content at hand."""
    with whole_file(path, lasts=lasts) as file:
        file.write(content)


@contextmanager
def whole_file(path: Path, *, lasts: bool = True) -> Generator[IO[bytes]]:
    """A file to write to, which replaces the previous one when complete; if the block raises, the old one stays.

    With `lasts` the content is synced first, so that a power loss leaves the old file or the new one; without it, some
    file systems leave an empty file. Symbolic links are followed; devices and pipes are written to directly.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # another process may be writing its own
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            if lasts:
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
