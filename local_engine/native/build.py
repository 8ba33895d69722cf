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

SOURCE: Final = Path(__file__).with_name("int8_linear.cpp")
FLAGS: Final = ("-O3", "-std=c++17", "-mavx2", "-mfma", "-fPIC", "-fno-math-errno")


@cache
def load_int8_linear() -> Callable[..., None] | None:
    """The compiled function, or None where there is no C++ compiler or no AVX2."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None or platform.machine() != "x86_64" or not has_avx2():
        return None
    library = _cache_folder() / f"int8_linear-{_fingerprint(compiler)}.so"
    if not library.exists() and not _compile(compiler, library):
        return None
    try:
        function = ctypes.CDLL(str(library)).breakeven_int8_linear
    except OSError:
        return None
    function.argtypes = [ctypes.c_void_p] * 7 + [ctypes.c_long] * 3 + [ctypes.c_int]
    function.restype = None
    return function


def has_avx2() -> bool:
    """Whether torch found AVX2 or better on this processor."""
    return torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512", "AMX")


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "breakeven"


def _fingerprint(compiler: str) -> str:
    text = SOURCE.read_text(encoding="utf-8") + repr(FLAGS) + compiler + torch.__version__
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _compile(compiler: str, library: Path) -> bool:
    """Build beside the target and move it there, so that two processes never meet half a file."""
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
            unit, built = Path(scratch) / "unit.o", Path(scratch) / "built.so"
            commands = (
                [compiler, *FLAGS, "-fopenmp", "-c", str(SOURCE), "-o", str(unit)],
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
