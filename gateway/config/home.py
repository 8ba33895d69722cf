"""Where state is stored: one directory, BREAKEVEN_HOME or ./.breakeven, and the names of everything in it."""

import contextlib
import errno
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from gateway.errors import StateError
from gateway.whole_file import sync_names

SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Home:
    """The paths of one deployment."""

    root: Path

    @property
    def config_file(self) -> Path:
        return self.root / "breakeven.yaml"

    @property
    def rules_file(self) -> Path:
        return self.root / "rules.yaml"

    @property
    def database_url(self) -> str:
        path = str((self.root / "breakeven.db").resolve())
        return f"sqlite+aiosqlite:///{quote(path, safe=' +/')}"  # ? would end the file name; %41 would be decoded

    @property
    def turns_file(self) -> Path:
        """Kept responses, when there is no Redis."""
        return self.root / "kept-responses.db"

    @property
    def conversations_file(self) -> Path:
        """Kept conversations, when there is no Redis."""
        return self.root / "kept-conversations.db"

    @property
    def journal_directory(self) -> Path:
        return self.root / "journal"

    @property
    def models_directory(self) -> Path:
        return self.root / "models"

    @property
    def engine_log(self) -> Path:
        return self.root / "engine.log"

    @property
    def ui_log(self) -> Path:
        return self.root / "ui.log"

    @property
    def address_file(self) -> Path:
        """The address at which the gateway was last started."""
        return self.root / "address"

    @property
    def lock_file(self) -> Path:
        """Locked by the one `breakeven serve` that uses this home."""
        return self.root / "serve.lock"

    @property
    def key_names_file(self) -> Path:
        """Names of the variables that held provider keys when the gateway was last started."""
        return self.root / "provider-keys"

    @property
    def curve_file(self) -> Path:
        return self.root / "throughput-curve.json"

    @property
    def classifier_directory(self) -> Path:
        """Classifier artefacts and corrections of this deployment, and which are in force."""
        return self.root / "classifier"

    @property
    def metrics_directory(self) -> Path:
        """Where the workers of this replica share their metrics."""
        return self.root / "metrics"

    @property
    def pepper_file(self) -> Path:
        return self.root / "pepper"

    @property
    def has_pepper(self) -> bool:
        """Whether the pepper exists already, so that `pepper` would create none."""
        return bool(os.environ.get("BREAKEVEN_PEPPER")) or self.pepper_file.exists()

    def pepper(self) -> bytes:
        """The secret key of the API key hashes; created once, readable only by the owner.

        Replicas that share a database must share it: BREAKEVEN_PEPPER (64 hexadecimal digits) takes precedence over the
        file.
        """
        given = os.environ.get("BREAKEVEN_PEPPER")
        if not given:
            return self._secret(self.pepper_file)
        try:
            return _secret_of(given)
        except ValueError as error:
            raise StateError("BREAKEVEN_PEPPER must be 64 hexadecimal digits; all API keys need it") from error

    def bodies_key(self) -> bytes:
        """The secret that encrypts stored prompts and answers; without it they are unreadable."""
        return self._secret(self.root / "bodies-key")

    def replica_id(self) -> str:
        """Created once per home: machines cloned from one image may share a host name, and homes a path."""
        path = self.root / "replica-id"
        try:
            if not path.exists():
                _write_once(path, secrets.token_hex(8))
            return path.read_text("ascii")
        except (OSError, UnicodeError) as error:
            raise StateError(f"cannot use {path} ({error}); remove it, and a new one is made") from error

    def _secret(self, path: Path) -> bytes:
        try:
            if not path.exists():
                _write_once(path, secrets.token_bytes(SECRET_BYTES).hex())
            return _secret_of(path.read_text("ascii"))
        except ValueError as error:
            raise StateError(
                f"{path} is not {2 * SECRET_BYTES} hexadecimal digits; restore it from a backup: keys or texts need it"
            ) from error
        except OSError as error:
            raise StateError(f"cannot use {path}: {error.strerror}") from error


def _write_once(path: Path, text: str) -> None:
    """Atomic and synced to disk; if several processes come at once, the first one wins."""
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(unfinished, path)
        sync_names(path.parent)  # without the pepper all keys are void
    finally:
        unfinished.unlink(missing_ok=True)


def _secret_of(text: str) -> bytes:
    value = bytes.fromhex(text)
    if len(value) != SECRET_BYTES:
        raise ValueError(text)
    return value


def find_home() -> Home:
    """BREAKEVEN_HOME, or `.breakeven` in the current directory; not created here.

    Raises StateError if the path is not valid text, as can happen in the C locale: SQLite and others accept no bytes.
    """
    root = Path(os.environ.get("BREAKEVEN_HOME") or ".breakeven").expanduser()
    try:
        str(root.absolute()).encode()
    except UnicodeEncodeError as error:
        raise StateError(
            f"cannot use {str(root.absolute())!a} for state: that is not read as UTF-8 here; leave out PYTHONUTF8=0, "
            "set LC_ALL=C.UTF-8, or set BREAKEVEN_HOME to a folder whose path has ASCII letters only"
        ) from error
    return Home(root)


def _keep_private(root: Path) -> None:
    """Restricts the directory to its owner if that is us; a volume mounted for our group is the cluster's to
    protect."""
    if root.stat().st_uid == os.geteuid():
        root.chmod(0o700)
    elif not os.access(root, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def create_home(home: Home) -> None:
    """Creates the directory for its owner alone. Raises StateError with the reason if it is not writable."""
    try:
        home.root.mkdir(parents=True, exist_ok=True)
        _keep_private(home.root)
    except OSError as error:
        raise StateError(
            f"cannot use {home.root} for state: {error.strerror}; give it to the user that runs this or, for a new "
            "deployment, set BREAKEVEN_HOME to a writable directory"
        ) from error
