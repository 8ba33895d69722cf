"""Facts needed by several kernels' launches, and how a kernel can begin before the previous one has ended.

Overlapping kernels are launched at once: the next one's programs occupy the device while the previous one's still run,
and wait there until all of it has ended and its results are visible. Each calls `begin` before it touches anything that
another kernel writes or reads; so it also ends after everything before it.
"""
# pyright: basic, reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false
# triton.language has no types of its own.

from functools import cache

import torch
import triton
import triton.language as tl
from triton import knobs
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

HOPPER = (9, 0)


def dot_type(dtype: torch.dtype) -> tl.dtype:
    """The type of tl.dot's operands for tensors of `dtype`; accumulation is always in float32.

    Triton's interpreter multiplies the bit patterns of bfloat16 as if they were integers, so narrow types are widened
    there.
    """
    if dtype == torch.float16:
        return tl.float16
    if dtype == torch.bfloat16 and not knobs.runtime.interpret:
        return tl.bfloat16
    if dtype == torch.float8_e4m3fn and not knobs.runtime.interpret:
        return tl.float8e4nv
    return tl.float32


def ceil_divide(a: int, b: int) -> int:
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


@cache
def multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def capability(device: torch.device) -> tuple[int, int]:
    """(0, 0) for a CPU."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)


def is_hopper_or_later(device: torch.device) -> bool:
    """Whether four warps multiply together, and a kernel can begin before the previous one has ended."""
    return capability(device) >= HOPPER


def overlapping(overlaps: bool) -> dict[str, bool]:
    """Launch options for Triton if the kernel begins early."""
    return {"launch_pdl": True} if overlaps else {}


@triton.jit
def begin(OVERLAPS: tl.constexpr):
    """Lets the next kernel's programs start where there is room, and waits for the previous kernel's results."""
    if OVERLAPS:
        gdc_launch_dependents()
        gdc_wait()
