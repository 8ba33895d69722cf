"""Compiles kernels for NVIDIA GPUs on a machine without one, through the same wrappers that the engine calls.

Triton includes its own assembler, so it only needs a stand-in driver that names the target; nothing is run.
"""

import re
import struct
import subprocess
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from local_engine.kernels import launch as launches

# Compute capabilities, and the shared memory available to a block: A100, Ada, Hopper.
SHARED_BYTES_PER_BLOCK = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024}
HOPPER = 90
INSTRUCTION_BYTES = 16


@dataclass(frozen=True)
class Compiled:
    """The assembler's report on one kernel."""

    name: str
    registers: int
    stack_bytes: int
    shared_bytes: int
    ptx: str
    cubin: bytes

    def uses(self, instruction: str) -> bool:
        """Whether PTX, from which the assembler works, has an instruction that matches this expression."""
        return re.search(rf"^\s*(@\S+ )?{instruction}", self.ptx, re.MULTILINE) is not None


class OfflineDriver:
    """A driver with only what compilation needs."""

    def __init__(self, capability: int) -> None:
        self._capability = capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._capability, 32)

    def get_current_device(self) -> int:
        """A separate device per capability, since Triton caches compiled kernels by device."""
        return self._capability

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


@contextmanager
def compiling(capability: int = HOPPER) -> Generator[list[Compiled]]:
    """Within the block, a launch compiles its kernel and appends it to the list instead of running it."""
    compiled: list[Compiled] = []
    launch, ask = JITFunction.__getitem__, launches.capability

    def compile_only(kernel: Any, grid: object) -> Callable[..., None]:
        def run(*args: Any, **options: Any) -> None:
            compiled.append(inspect(kernel.run(*args, grid=grid, warmup=True, **options)))

        return run

    def named(device: torch.device) -> tuple[int, int]:
        return divmod(capability, 10)

    driver.set_active(OfflineDriver(capability))  # pyright: ignore[reportArgumentType] - a stand-in
    JITFunction.__getitem__ = compile_only  # pyright: ignore[reportAttributeAccessIssue]
    launches.capability = named
    try:
        yield compiled
    finally:
        JITFunction.__getitem__, launches.capability = launch, ask


@cache
def inspect(kernel: Any) -> Compiled:
    """Reports are cached: a kernel compiled before is the same object."""
    usage = ask("cuobjdump", "-res-usage", content=kernel.asm["cubin"])
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    assert found, usage
    return Compiled(
        kernel.metadata.name,
        int(found[1]),
        int(found[2]),
        kernel.metadata.shared,
        kernel.asm["ptx"],
        kernel.asm["cubin"],
    )


def disassembled(kernels: Sequence[Compiled]) -> list[str]:
    """Each kernel's instructions as assembled for Hopper. All at once: the disassembler takes 0.4 s to start."""
    codes = [_code(kernel.cubin) for kernel in kernels]
    told = ask("nvdisasm", "-b", "SM90a", content=b"".join(codes))
    instructions = iter(re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", told))
    return ["\n".join(islice(instructions, len(code) // INSTRUCTION_BYTES)) for code in codes]


def _code(cubin: bytes) -> bytes:
    """The section of the instructions in a file with one kernel (ELF, 64 bits)."""
    [at] = struct.unpack_from("<Q", cubin, 0x28)
    size, count, place_of_names = struct.unpack_from("<HHH", cubin, 0x3A)
    # Name, type, flags, address, place, size.
    sections = [struct.unpack_from("<IIQQQQ", cubin, at + number * size) for number in range(count)]
    names = sections[place_of_names][4]
    [code] = [one for one in sections if cubin.startswith(b".text.", names + one[0])]
    return cubin[code[4] : code[4] + code[5]]


def ask(program: str, *options: str, content: bytes) -> str:
    """What one of Triton's CUDA programs says of a file with this content."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / program
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(content)
        file.flush()
        return subprocess.run([str(tool), *options, file.name], check=True, capture_output=True, text=True).stdout
