"""Which classifier is in force: artefacts and corrections under BREAKEVEN_HOME, and the file that selects among them.

Versions never change; `active.json` is replaced atomically, so readers see the old choice or the new one.
"""

import fcntl
import json
import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from classifier.artefact import MANIFEST, VOCABULARY, WEIGHTS, ArtefactError, read_artefact
from classifier.item_response import ItemResponseClassifier
from classifier.load import load_artefact
from classifier.online.correction import CorrectedClassifier, Correction
from classifier.protocol import Classifier
from gateway.errors import StateError
from gateway.whole_file import write_whole

SHIPPED = "shipped"
PART = ".part"
PARTS = (WEIGHTS, VOCABULARY, MANIFEST)
UNTIL = "until_us"
"""In a correction's facts: when the last request that taught it was accepted."""


@dataclass(frozen=True, slots=True)
class Active:
    """The artefact (`shipped` or a stored one) and the correction applied to it, if any; why, and since when."""

    artefact: str = SHIPPED
    correction: str | None = None
    why: str = "the shipped artefact"
    at_us: int = 0


class ClassifierVersions:
    """One directory. Methods raise StateError naming the file that is at fault."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.active_file = directory / "active.json"

    def history(self) -> list[Active]:
        """Every choice, oldest first; the last is in force. Never empty."""
        try:
            rows: list[dict[str, Any]] = json.loads(self.active_file.read_text("utf-8"))
            return [Active(**row) for row in rows] or [Active()]
        except FileNotFoundError:
            return [Active()]
        except (OSError, ValueError, TypeError) as error:
            raise StateError(f"{self.active_file} cannot be read ({error}); restore it, or delete it") from error

    def require(self, chosen: Active) -> None:
        """Raises StateError if the choice cannot be loaded."""
        self._frozen(chosen.artefact)
        if chosen.correction is not None:
            self.correction(chosen.correction)

    def replace(self, history: Sequence[Active]) -> bool:
        """Makes the last of these the choice in force, if it is not already; whether anything was changed. Nothing is,
        if it cannot be loaded: raises StateError."""
        with self._alone():
            if _is_same(self.active_file, text := _text_of(history)):
                return False
            self.require(history[-1])
            write_whole(self.active_file, text)
            return True

    def corrections(self) -> list[str]:
        return sorted(path.stem for path in self._directory.glob("corrections/*.json"))

    def artefacts(self) -> list[str]:
        kept = sorted(path.name for path in self._directory.glob("artefacts/*") if path.suffix != PART)
        return [SHIPPED, *kept]

    def add_correction(self, correction: Correction, facts: dict[str, Any]) -> str:
        """Stores a correction with the facts it was learnt from; the same correction is stored once."""
        path = self._directory / "corrections" / f"{correction.id}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"shifts": correction.shifts, **facts}, indent=1, sort_keys=True) + "\n"
        write_whole(path, text.encode())
        return correction.id

    def files(self, *, artefact: str = SHIPPED, correction: str | None = None) -> dict[str, bytes]:
        """The files of a stored artefact and of a correction, by their path in this directory."""
        paths = [] if correction is None else [f"corrections/{correction}.json"]
        if artefact != SHIPPED:
            paths += [f"artefacts/{artefact}/{name}" for name in PARTS]
        try:
            return {path: (self._directory / path).read_bytes() for path in paths}
        except OSError as error:
            raise StateError(f"{error.filename} cannot be read: {error.strerror}") from error

    def keep(self, corrections: Mapping[str, bytes]) -> None:
        """Stores files of corrections that were learned elsewhere, by their path in this directory."""
        for path, content in corrections.items():
            kept = self._directory / "corrections" / Path(path).name
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_whole(kept, content)

    def has(self, artefact: str) -> bool:
        """Whether this home has a whole copy."""
        return _is_whole(self._directory / "artefacts" / artefact)

    def has_correction(self, name: str) -> bool:
        """Whether this home has a copy that can be read."""
        try:
            self.correction(name)
        except StateError:
            return False
        return True

    def keep_artefact(self, name: str, files: Mapping[str, bytes]) -> None:
        """Stores an artefact from elsewhere. Raises StateError if it is not that one, or not whole."""
        kept = self._directory / "artefacts" / name
        with self._alone():
            if not _is_whole(kept):
                _write_artefact({Path(path).name: content for path, content in files.items()}, kept)

    def correction(self, name: str) -> Correction:
        return self._correction(name)[0]

    def taught_until_us(self, name: str) -> int | None:
        """When the last request that taught this correction was accepted; None if not recorded."""
        return self._correction(name)[1]

    def _correction(self, name: str) -> tuple[Correction, int | None]:
        path = self._directory / "corrections" / f"{name}.json"
        try:
            stored: dict[str, Any] = json.loads(path.read_text("utf-8"))
            shifts = {model: (float(level), float(slope)) for model, (level, slope) in stored["shifts"].items()}
            until_us = stored.get(UNTIL)
            return Correction(shifts), None if until_us is None else int(until_us)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateError(
                f"there is no usable correction {name} ({error}); see `breakeven classifier list`"
            ) from error

    def add_artefact(self, folder: Path) -> str:
        """Stores a copy of a trained or adapted artefact. Raises StateError if it is not valid."""
        name = _name_of(folder)
        kept = self._directory / "artefacts" / name
        with self._alone():
            if not _is_whole(kept):  # an artefact in force is never overwritten
                _write_artefact({part: (folder / part).read_bytes() for part in PARTS}, kept)
        return name

    def open(self) -> Classifier:
        """The classifier in force, not yet bound to models."""
        chosen, frozen = self.history()[-1], self.open_frozen()
        return frozen if chosen.correction is None else CorrectedClassifier(frozen, self.correction(chosen.correction))

    def open_frozen(self) -> ItemResponseClassifier:
        """The artefact in force, without its correction."""
        try:
            return self._frozen(self.history()[-1].artefact)
        except StateError as error:
            raise StateError(f"{error}; `breakeven classifier rollback` goes back to the one before") from error

    def _frozen(self, name: str) -> ItemResponseClassifier:
        try:
            return load_artefact(None if name == SHIPPED else self._directory / "artefacts" / name)
        except ArtefactError as error:
            raise StateError(str(error)) from error

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Serialises reading and writing the history, so that concurrent promotions are both recorded."""
        with (_made(self._directory) / "active.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _text_of(history: Sequence[Active]) -> bytes:
    return (json.dumps([asdict(one) for one in history], indent=1) + "\n").encode()


def _is_same(file: Path, text: bytes) -> bool:
    try:
        return file.read_bytes() == text
    except OSError:
        return False


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _is_whole(folder: Path) -> bool:
    try:
        read_artefact(folder)
    except ArtefactError:
        return False
    return True


def _name_of(folder: Path) -> str:
    """Raises StateError if it is not a valid artefact."""
    try:
        name = read_artefact(folder).sha256[:16]
        load_artefact(folder)
    except ArtefactError as error:
        raise StateError(str(error)) from error
    return name


def _write_artefact(files: Mapping[str, bytes], kept: Path) -> None:
    """Written whole or not at all, replacing a damaged copy and removing remains of a killed one. The caller must hold
    the lock. Raises StateError, also if it is not the artefact of that name."""
    part = kept.with_name(kept.name + PART)
    for left in kept.parent.glob(f"*{PART}"):
        shutil.rmtree(left, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        for name, content in files.items():
            write_whole(part / name, content)
        if _name_of(part) != kept.name:
            raise StateError(f"these are the files of another artefact than {kept.name}: promote that again")
        shutil.rmtree(kept, ignore_errors=True)
        part.rename(kept)
    except OSError as error:
        raise StateError(
            f"cannot keep the artefact in {kept}: {error.strerror}; make room there, then try again"
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
