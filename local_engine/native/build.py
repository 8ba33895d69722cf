"""Which C++ kernels this processor can run, compiled and loaded."""

import ctypes
import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import torch

from native.library import load_library, processor_flags

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
    return {"avx512_vnni", "avx512bw", "avx512vl", "avx512dq"} <= processor_flags()


def _load(name: str, flags: tuple[str, ...]) -> ctypes.CDLL | None:
    if platform.machine() != "x86_64":
        return None
    return load_library(FOLDER / f"{name}.cpp", flags, link=_openmp())


def _openmp() -> list[str]:
    """Link torch's own OpenMP runtime, so that both share one pool of threads."""
    torch_folder = Path(torch.__file__).parent
    bundled = [*torch_folder.glob("lib/libgomp*.so*"), *torch_folder.parent.glob("torch.libs/libgomp*.so*")]
    return [str(bundled[0]), f"-Wl,-rpath,{bundled[0].parent}"] if bundled else ["-lgomp"]
