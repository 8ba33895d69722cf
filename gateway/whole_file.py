"""Files that are replaced whole or not at all: who reads one meets the old text or the new, never half of either."""

import os
from contextlib import suppress
from pathlib import Path


def sync_names(directory: Path) -> None:
    """What was made, renamed and removed in it so far survives a loss of power. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes, *, lasts: bool = True) -> None:
    """Raises OSError, and leaves what was there. What `lasts` is on the disk first: a loss of power leaves the old or
    the new, where else some file systems leave a file of no length.

    A link stays one; a device or a pipe is written to as it is.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path = path.resolve()
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # another process may be writing its own
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            if lasts:
                os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise
