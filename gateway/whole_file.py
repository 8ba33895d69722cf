"""Files that are replaced whole or not at all: who reads one meets the old text or the new, never half of either."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


def sync_names(directory: Path) -> None:
    """What was made, renamed and removed in it so far survives a loss of power. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes, *, lasts: bool = True) -> None:
    """As `whole_file`, of what is there already."""
    with whole_file(path, lasts=lasts) as file:
        file.write(content)


@contextmanager
def whole_file(path: Path, *, lasts: bool = True) -> Generator[IO[bytes]]:
    """A file to write to, which replaces what was there once all is written; what raises leaves the old.

    What `lasts` is on the disk first: a loss of power leaves the old or the new, where else some file systems leave a
    file of no length. A link stays one; a device or a pipe is written to as it is.
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
