"""Compiles the native decoder for this processor, and loads it."""

import ctypes
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import torch

from native.library import load_library, processor_flags

SOURCE: Final = Path(__file__).parent / "decoder.cpp"
COMMON_FLAGS: Final = ("-O3", "-std=c++17", "-fPIC", "-fno-math-errno", "-fopenmp")


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """One way to compile the decoder, and the processors that can run it: machine and features, in the system's
    naming."""

    name: str
    machine: str
    features: frozenset[str]
    flags: tuple[str, ...]


INSTRUCTION_SETS: Final = (
    InstructionSet(
        "AVX-512 with VNNI",
        "x86_64",
        frozenset({"avx512_vnni", "avx512bw", "avx512vl", "avx512dq"}),
        ("-mfma", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni"),
    ),
    InstructionSet(
        "AVX2 with VNNI",
        "x86_64",
        frozenset({"avx2", "fma", "f16c", "avx_vnni"}),
        ("-mfma", "-mavx2", "-mf16c", "-mavxvnni"),
    ),
    InstructionSet("AVX2", "x86_64", frozenset({"avx2", "fma", "f16c"}), ("-mfma", "-mavx2", "-mf16c")),
    InstructionSet("NEON with dot products", "aarch64", frozenset({"asimddp"}), ("-march=armv8.2-a+dotprod",)),
    InstructionSet("NEON", "aarch64", frozenset(), ()),
)


def runnable_sets() -> list[InstructionSet]:
    """The sets that this processor supports, fastest first."""
    machine, features = platform.machine(), processor_flags()
    return [known for known in INSTRUCTION_SETS if known.machine == machine and known.features <= features]


@cache
def load_decoder() -> ctypes.CDLL | None:
    """The fastest forward pass that runs here, or None without a C++ compiler or on too old a processor."""
    return next(filter(None, map(compile_decoder, runnable_sets())), None)


def compile_decoder(instructions: InstructionSet) -> ctypes.CDLL | None:
    """The forward pass in these instructions, or None without a C++ compiler that supports them."""
    return load_library(SOURCE, (*COMMON_FLAGS, *instructions.flags), link=_openmp())


def _openmp() -> list[str]:
    """Links torch's own OpenMP runtime, so that both share one pool of threads."""
    torch_folder = Path(torch.__file__).parent
    bundled = [*torch_folder.glob("lib/libgomp*.so*"), *torch_folder.parent.glob("torch.libs/libgomp*.so*")]
    return [str(bundled[0]), f"-Wl,-rpath,{bundled[0].parent}"] if bundled else ["-lgomp"]
