"""Notices that a file was replaced or changed, by its time and size."""

from pathlib import Path


class FileWatch:
    """What is there now is known; `has_changed` says once of every change after that."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._signature()

    def has_changed(self) -> bool:
        """False also when the file is gone."""
        now = self._signature()
        if now is None or now == self._seen:
            return False
        self._seen = now
        return True

    def _signature(self) -> tuple[int, int] | None:
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            return None
        return stat.st_mtime_ns, stat.st_size
