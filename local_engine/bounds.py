"""What a process of ours may take that reads or runs what a stranger wrote. The system ends it there."""

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = str(Path(__file__).parents[1])


def bound(kind: int, most: int) -> None:
    """Lower one of this process's limits, where the system knows it and has no lower one."""
    with suppress(ValueError, OSError):
        resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


def environment() -> dict[str, str]:
    """In which another process finds these modules, wherever it begins."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])}
