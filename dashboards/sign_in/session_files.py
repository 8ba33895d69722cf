"""Sessions on disk, so that a restart of the UI signs nobody out. The files alone reveal nothing.

Each file is named by a digest of its cookie's secret and encrypted with a key derived from it: without the cookie,
which only the browser has, the API key inside cannot be read.
"""

import base64
import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Generator
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from dashboards.sign_in.sessions import IDLE_SECONDS, NOTE_SECONDS, Session

LOG = logging.getLogger(__name__)


class SessionFiles:
    """A sessions.Shelf. `seen_at` is stored as the file's modification time. While the disk takes no changes, sessions
    are in memory alone: whoever looks for what is wrong can sign in."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def save(self, secret: str, session: Session) -> None:
        with self._as_far_as_the_disk_goes():
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._sweep(session.started_at)
            self._write(self._path(secret), secret, session)

    def _write(self, path: Path, secret: str, session: Session) -> None:
        fields = {
            "key": session.key,
            "name": session.name,
            "role": session.role,
            "permissions": sorted(session.permissions),
            "csrf": session.csrf,
            "started_at": session.started_at,
            "key_id": session.key_id,
        }
        part = path.with_suffix(".part")
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(_seal(secret).encrypt(json.dumps(fields).encode()))
        os.utime(part, (session.seen_at, session.seen_at))
        part.rename(path)

    def load(self, secret: str) -> Session | None:
        """None if there is no such file, or this secret does not decrypt it."""
        path = self._path(secret)
        try:
            fields = json.loads(_seal(secret).decrypt(path.read_bytes()))
            return Session(
                key=fields["key"],
                name=fields["name"],
                role=fields["role"],
                permissions=frozenset(fields["permissions"]),
                csrf=fields["csrf"],
                started_at=fields["started_at"],
                seen_at=path.stat().st_mtime,
                key_id=fields["key_id"],
            )
        except (FileNotFoundError, InvalidToken, KeyError, ValueError):
            return None

    def touch(self, secret: str, seen_at: float) -> None:
        with self._as_far_as_the_disk_goes(), contextlib.suppress(FileNotFoundError):
            os.utime(self._path(secret), (seen_at, seen_at))

    def remove(self, secret: str) -> None:
        """Raises OSError: the session would be found again."""
        self._path(secret).unlink(missing_ok=True)

    def _sweep(self, now: float) -> None:
        """Deletes files too old for any valid session."""
        for path in self._directory.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if now - path.stat().st_mtime > IDLE_SECONDS + NOTE_SECONDS:
                    path.unlink()

    @contextlib.contextmanager
    def _as_far_as_the_disk_goes(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            LOG.warning(
                "cannot write to %s: %s: a restart of the web UI signs people out", self._directory, error.strerror
            )

    def _path(self, secret: str) -> Path:
        return self._directory / hashlib.sha256(b"file " + secret.encode()).hexdigest()


def _seal(secret: str) -> Fernet:
    """The secret has 256 random bits, so a single hash suffices to derive a key."""
    return Fernet(base64.urlsafe_b64encode(hashlib.sha256(b"seal " + secret.encode()).digest()))
