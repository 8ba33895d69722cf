"""rules.yaml as a file that may change, and beside it the hash of what was last taken over."""

import logging
from pathlib import Path

from gateway.rulebook.versions import text_version
from gateway.whole_file import write_whole

log = logging.getLogger(__name__)


class WatchedFile:
    """The hash is kept because a restart must not undo a web edit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._memory = path.with_suffix(".taken")
        self._looking_at: tuple[int, int] | None = None
        self._looked_at: tuple[int, int] | None = None

    def text_if_touched(self) -> str | None:
        """The text if the file changed since the last completed look; None also if there is no file.

        Raises UnicodeDecodeError.
        """
        try:
            stat = self.path.stat()
            signature = (stat.st_mtime_ns, stat.st_size)
            if signature == self._looked_at:
                return None
            text = self.path.read_text(encoding="utf-8")
        except OSError:
            return None
        self._looking_at = signature
        return text

    def end_look(self) -> None:
        """The text has been dealt with. Until then every look reads it again, in case the store failed."""
        self._looked_at = self._looking_at

    def remember(self, text: str) -> None:
        """Atomic: a partial hash would not match, and a restart would take the file over again."""
        try:
            write_whole(self._memory, text_version(text).encode())
        except OSError as error:
            log.error(
                "cannot write %s (%s): an earlier text that is restored in %s may not be applied",
                self._memory, error.strerror, self.path.name,
            )  # fmt: skip

    def taken(self) -> str | None:
        try:
            return self._memory.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None
