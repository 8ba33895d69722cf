"""What `breakeven serve` is heard through, which may be gone at any time; knows nothing of what is said."""

import contextlib
import os
import sys
from typing import Any

from rich.console import Console

STANDARD = (0, 1, 2)


class ServeConsole(Console):
    """Falls silent for good once nobody reads it or its disk is full: no reason to stop serving, or to stop badly."""

    def print(self, *objects: Any, **options: Any) -> None:
        try:
            super().print(*objects, **options)
        except OSError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Where rich would exit."""
        self.quiet = True
        with contextlib.suppress(OSError, ValueError):  # what Python still holds for it would fail at the very end
            _open_nothing(as_descriptor=sys.stdout.fileno())


def open_standard_files() -> None:
    """In place of those that whoever started us had closed: a socket that came to be 0 would end the event loop."""
    for descriptor in STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            _open_nothing(as_descriptor=descriptor)


def _open_nothing(*, as_descriptor: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    if nothing != as_descriptor:
        os.dup2(nothing, as_descriptor)
        os.close(nothing)
