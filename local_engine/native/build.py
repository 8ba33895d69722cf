"""Compiles and loads the C++ kernels: once per source, flags and torch version, into the cache folder of the user."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import torch

FOLDER: Final = Path(__file__).parent
COMMON_FLAGS: Final = ("-O3", "-std=c++17", "-mfma", "-fPIC", "-fno-math-errno", "-fopenmp")
AVX2_FLAGS: Final = (*COMMON_FLAGS, "-mavx2")
VNNI_FLAGS: Final = (*COMMON_FLAGS, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni")


@cache
def load_int8_linear() -> Callable[..., None] | None:
    """The compiled product, or None where there is no C++ compiler or no AVX2."""
    library = _load("int8_linear", AVX2_FLAGS) if has_avx2() else None
    if library is None:
        return None
    function = library.breakeven_int8_linear
    function.argtypes = [ctypes.c_void_p] * 7 + [ctypes.c_long] * 3 + [ctypes.c_int]
    function.restype = None
    return function


@cache
def load_decoder() -> ctypes.CDLL | None:
    """The compiled forward pass, or None where there is no C++ compiler or no AVX-512 with VNNI."""
    return _load("decoder", VNNI_FLAGS) if has_vnni() else None


def has_avx2() -> bool:
    """Whether torch found AVX2 or better on this processor."""
    return torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512", "AMX")


def has_vnni() -> bool:
    """Whether the system lists AVX-512's integer dot products among this processor's features."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return {"avx512_vnni", "avx512bw", "avx512vl", "avx512dq"} <= set(flags)


def find_compiler() -> str | None:
    """A C++ compiler on the path."""
    return shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


def _load(name: str, flags: tuple[str, ...]) -> ctypes.CDLL | None:
    compiler = find_compiler()
    if compiler is None or platform.machine() != "x86_64":
        return None
    source = FOLDER / f"{name}.cpp"
    library = _cache_folder() / f"{name}-{_fingerprint(source, flags, compiler)}.so"
    if library.exists() or _compile(compiler, flags, source, library):
        return _open(library)
    # A service's account may have no home to keep it in: then it is compiled at every start, and open it needs no file.
    with tempfile.TemporaryDirectory() as scratch:
        own = Path(scratch) / library.name
        return _open(own) if _compile(compiler, flags, source, own) else None


def _open(library: Path) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(library))
    except OSError:
        return None


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "breakeven"


def _fingerprint(source: Path, flags: tuple[str, ...], compiler: str) -> str:
    sources = (source, *sorted(source.parent.glob("*.h")))
    text = "".join(part.read_text(encoding="utf-8") for part in sources) + repr(flags) + compiler + torch.__version__
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _compile(compiler: str, flags: tuple[str, ...], source: Path, library: Path) -> bool:
    """Build beside the target and move it there, so that two processes never meet half a file."""
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
            unit, built = Path(scratch) / "unit.o", Path(scratch) / "built.so"
            commands = (
                [compiler, *flags, "-c", str(source), "-o", str(unit)],
                [compiler, "-shared", str(unit), "-o", str(built), *_openmp()],
            )
            for command in commands:
                if subprocess.run(command, capture_output=True, check=False).returncode != 0:
                    return False
            built.replace(library)
    except OSError:
        return False
    return True


def _openmp() -> list[str]:
    """Link torch's own OpenMP runtime, so that both share one pool of threads."""
    torch_folder = Path(torch.__file__).parent
    bundled = [*torch_folder.glob("lib/libgomp*.so*"), *torch_folder.parent.glob("torch.libs/libgomp*.so*")]
    return [str(bundled[0]), f"-Wl,-rpath,{bundled[0].parent}"] if bundled else ["-lgomp"]
