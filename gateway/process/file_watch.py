"""Notices that a file was replaced or changed, by modification time and size."""

from pathlib import Path


class FileWatch:
    """The current state counts as seen; `has_changed` reports every later change once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._signature()

    def has_changed(self) -> bool:
        """False also when the file does not exist."""
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
