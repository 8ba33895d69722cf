"""Files that are replaced whole or not at all: who reads one meets the old text or the new, never half of either."""

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Raises OSError, and leaves what was there. Not synced: after a loss of power the old content may be back."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # another process may be writing its own
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise
