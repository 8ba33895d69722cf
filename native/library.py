"""Compiles and loads a C++ source: once per source and flags, cached in the user's cache folder."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path


def load_library(
    source: Path, flags: Sequence[str], *, link: Sequence[str] = (), keeps_lock: bool = False
) -> ctypes.CDLL | None:
    """The compiled source, or None if there is no C++ compiler, no room, or compilation fails.

    Machines without a compiler may have the library beside its source. `link` are linker arguments. `keeps_lock` keeps
    the GIL during calls, for calls of microseconds that are not worth releasing it.
    """
    how = ctypes.PyDLL if keeps_lock else ctypes.CDLL
    name = f"{source.stem}-{_fingerprint(source, (*flags, *link))}.so"
    cache = _cache_folder()
    for folder in (source.parent, cache):
        found = _open(folder / name, how) if folder is not None and (folder / name).exists() else None
        if found is not None:
            return found
    compiler = find_compiler()
    if compiler is None:
        return None
    if cache is not None and _compile(compiler, source, flags, link, cache / name):
        return _open(cache / name, how)
    # A service account may have no home for a cache: then it is compiled at every start; once open it needs no file.
    try:
        with tempfile.TemporaryDirectory() as scratch:
            own = Path(scratch) / name
            return _open(own, how) if _compile(compiler, source, flags, link, own) else None
    except OSError:  # no disk has room for it
        return None


def find_compiler() -> str | None:
    """A C++ compiler on the path."""
    return shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


def processor_flags(listing: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The processor features listed by the system; empty if there are none."""
    try:
        lines = listing.read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    # Called flags on x86, features on ARM.
    return frozenset(next((line.split() for line in lines if line.startswith(("flags", "Features"))), []))


def _open(library: Path, how: type[ctypes.CDLL]) -> ctypes.CDLL | None:
    try:
        return how(str(library))
    except OSError:
        return None


def _cache_folder() -> Path | None:
    """None without a home directory, as for container users unknown to the system and without HOME."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "breakeven"
    except RuntimeError:
        return None


def _fingerprint(source: Path, arguments: Sequence[str]) -> str:
    sources = (source, *sorted(source.parent.glob("*.h")))
    text = "".join(part.read_text(encoding="utf-8") for part in sources) + repr(arguments)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _compile(compiler: str, source: Path, flags: Sequence[str], link: Sequence[str], library: Path) -> bool:
    """Builds in a temporary folder and moves the result, so that no process sees a partial file."""
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
            unit, built = Path(scratch) / "unit.o", Path(scratch) / "built.so"
            commands = (
                [compiler, *flags, "-c", str(source), "-o", str(unit)],
                [compiler, "-shared", str(unit), "-o", str(built), *link],
            )
            for command in commands:
                if subprocess.run(command, capture_output=True, check=False).returncode != 0:
                    return False
            built.replace(library)
    except OSError:
        return False
    return True
