"""Resource limits for our processes that read or run untrusted input. Beyond them the system ends the process."""

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = str(Path(__file__).parents[1])


def bound(kind: int, most: int) -> None:
    """Lowers one of this process' limits, if the system has it and it is not lower already."""
    with suppress(ValueError, OSError):
        resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


def environment() -> dict[str, str]:
    """An environment in which another process finds these modules, wherever it starts."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])}
