"""The disk checks of `breakeven doctor`: home, journal, and what is kept for callers. Changes nothing."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile

from gateway.cli.doctor.finding import Finding, attempt
from gateway.config.home import Home
from gateway.config.settings import KeptAnswerSettings, Settings
from gateway.ledger.disk import sync_content
from gateway.ledger.native.native_thread import why_no_native_thread
from gateway.storage.turns.inspection import inspect_turn_file

LEAST_FREE_BYTES = 2 << 30
ANOTHER = "set BREAKEVEN_HOME to a writable directory with 2 GB free"
KEEP_IT = (
    "make room there, mount its disk for writing, give it to the user that runs `breakeven serve`, or move it whole to "
    "another local disk and set BREAKEVEN_HOME: a new directory has none of its keys, books and journal"
)


def examine_disk(home: Home, settings: Settings | None) -> Iterator[Finding]:
    """The home, the journal in it, and kept responses and conversations. `settings` is None if they cannot be read."""
    yield attempt("state", lambda: _state(home), KEEP_IT if home.root.exists() else ANOTHER)
    yield _journal(home)
    yield _kept("responses", home.turns_file, home, settings)
    yield _kept("conversations", home.conversations_file, home, settings)


def _state(home: Home) -> str:
    if not home.root.exists():
        above = next(one for one in home.root.absolute().parents if one.exists())
        if not (above.is_dir() and os.access(above, os.W_OK)):
            raise PermissionError(f"{home.root} does not exist, and {above} is not writable")
        return f"{home.root} does not exist yet; `breakeven serve` makes it"
    if not os.access(home.root, os.W_OK):
        raise PermissionError(f"{home.root} is not writable")
    free = shutil.disk_usage(home.root).free
    if free < LEAST_FREE_BYTES:
        raise OSError(f"only {free / 1e9:.1f} GB free at {home.root}")
    return f"{home.root}, {free / 1e9:.0f} GB free"


def _journal(home: Home) -> Finding:
    """Whether its disk syncs, and whether a thread of C++ or of Python asks it to; see gateway/ledger/syncing.py."""
    if not home.root.exists():
        return Finding("journal", True, "made by `breakeven serve`")
    try:
        with NamedTemporaryFile(dir=home.root, prefix="sync-trial-") as made:
            sync_content(made.fileno())
    except OSError as error:
        return Finding("journal", False, f"{home.root} cannot be synced: {error}", KEEP_IT)
    folders = (home.journal_directory, *home.journal_directory.glob("worker-*"))
    closed = [folder for folder in folders if folder.exists() and not os.access(folder, os.W_OK | os.X_OK)]
    if closed:
        return Finding(
            "journal", False, f"{closed[0]} is not writable", "give it to the user that runs `breakeven serve`"
        )
    if refusal := why_no_native_thread():
        return Finding("journal", False, f"synced by a thread of Python's, which costs more CPU ({refusal})")
    return Finding("journal", True, "synced by a thread of C++")


def _kept(what: str, file: Path, home: Home, settings: Settings | None) -> Finding:
    """Kept responses or conversations, in their file; see gateway/composition/kept_answers.py."""
    name = f"kept {what}"
    kept = settings.kept_answers if settings is not None else KeptAnswerSettings()
    if settings is not None and settings.redis is not None and kept.response_hours != 0:
        if kept.response_hours is None:
            return Finding(name, False, "none: with Redis, only once `kept_answers.response_hours` is set")
        return Finding(name, True, "in Redis")
    if not (kept.disk_megabytes and kept.response_hours != 0):
        return Finding(name, True, "in no file, as `kept_answers` in breakeven.yaml says")
    if not home.root.exists():
        return Finding(name, True, "none kept yet")
    return attempt(
        name,
        lambda: inspect_turn_file(file, max_bytes=kept.disk_megabytes << 20, what=what),
        f"do what it says; until then models are served, and {what} may be lost at the next start",
    )
