"""A model file as bytes that are read when they are needed. Knows no format."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from local_engine.errors import ModelUnavailable


class OpenFile:
    """Keeps its file open, so that one put in its place meanwhile is not mixed in.

    It is read, not mapped: the first look at a mapped page that was cut off ends the process with SIGBUS.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self.name = path.name
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def from_its_start(self) -> BinaryIO:
        """To be read forward, once."""
        return open(self._descriptor, "rb", closefd=False)

    def read(self, start: int, count: int) -> np.ndarray:
        """`count` bytes from `start` on, in memory of their own; raises ModelUnavailable if there are fewer."""
        found = np.empty(count, np.uint8)
        view, at = found.data, 0
        while at < count:
            try:
                got = os.preadv(self._descriptor, [view[at:]], start + at)  # at most 2 GB at once
            except OSError as error:
                raise ModelUnavailable(f"Cannot read {self.name} ({error}).") from error
            if not got:
                raise ModelUnavailable(f"{self.name} is damaged, or was cut off meanwhile, at byte {start + at}.")
            at += got
        return found


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of bytes in a file; numpy.asarray() reads them."""

    file: OpenFile
    start: int
    rows: int
    row_bytes: int

    @property
    def end(self) -> int:
        return self.start + self.rows * self.row_bytes

    def __getitem__(self, part: slice) -> "FileRows":
        first, end, _ = part.indices(self.rows)
        return replace(self, start=self.start + first * self.row_bytes, rows=end - first)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.file.read(self.start, self.rows * self.row_bytes).reshape(self.rows, self.row_bytes)
