"""The native decoder, compiled for what this processor has, and loaded."""

import ctypes
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import torch

from native.library import load_library, processor_flags

SOURCE: Final = Path(__file__).parent / "decoder.cpp"
COMMON_FLAGS: Final = ("-O3", "-std=c++17", "-mfma", "-fPIC", "-fno-math-errno", "-fopenmp")


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """One way to compile the decoder, and the features, as the system names them, of processors that can run it."""

    name: str
    features: frozenset[str]
    flags: tuple[str, ...]


INSTRUCTION_SETS: Final = (
    InstructionSet(
        "AVX-512 with VNNI",
        frozenset({"avx512_vnni", "avx512bw", "avx512vl", "avx512dq"}),
        ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni"),
    ),
    InstructionSet("AVX2 with VNNI", frozenset({"avx2", "fma", "f16c", "avx_vnni"}), ("-mavx2", "-mf16c", "-mavxvnni")),
    InstructionSet("AVX2", frozenset({"avx2", "fma", "f16c"}), ("-mavx2", "-mf16c")),
)


def runnable_sets() -> list[InstructionSet]:
    """Those that this processor has, the fastest first."""
    if platform.machine() != "x86_64":
        return []
    return [instructions for instructions in INSTRUCTION_SETS if instructions.features <= processor_flags()]


@cache
def load_decoder() -> ctypes.CDLL | None:
    """The fastest forward pass that runs here, or None where there is no C++ compiler or the processor is too old."""
    return next(filter(None, map(compile_decoder, runnable_sets())), None)


def compile_decoder(instructions: InstructionSet) -> ctypes.CDLL | None:
    """The forward pass in these instructions, or None where there is no C++ compiler or it does not know them."""
    return load_library(SOURCE, (*COMMON_FLAGS, *instructions.flags), link=_openmp())


def _openmp() -> list[str]:
    """Link torch's own OpenMP runtime, so that both share one pool of threads."""
    torch_folder = Path(torch.__file__).parent
    bundled = [*torch_folder.glob("lib/libgomp*.so*"), *torch_folder.parent.glob("torch.libs/libgomp*.so*")]
    return [str(bundled[0]), f"-Wl,-rpath,{bundled[0].parent}"] if bundled else ["-lgomp"]
