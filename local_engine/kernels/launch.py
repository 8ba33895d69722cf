"""Small facts that more than one kernel's launch needs, and how one kernel begins before the last has ended.

Kernels that overlap are launched at once: the next one's programs take their places on the device while the last one's
still run, and wait there until all of it has ended and can be read. Each calls `begin` before it touches anything that
another kernel writes or reads; so it ends after all that came before it, too.
"""
# pyright: basic, reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false
# triton.language has no types of its own.

from functools import cache

import torch
import triton
import triton.language as tl
from triton import knobs
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

OVERLAPPING_CAPABILITY = (9, 0)


def dot_type(dtype: torch.dtype) -> tl.dtype:
    """The type of tl.dot's operands for tensors of `dtype`; the sums are always float32.

    Triton's interpreter multiplies the bit patterns of bfloat16 as if they were integers, so there narrow types are
    widened.
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


def can_overlap(device: torch.device) -> bool:
    """Whether the device can begin a kernel before the last one has ended."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= OVERLAPPING_CAPABILITY


def overlapping(overlaps: bool) -> dict[str, bool]:
    """What Triton is told at the launch of a kernel that begins early; nothing else knows the word."""
    return {"launch_pdl": True} if overlaps else {}


@triton.jit
def begin(OVERLAPS: tl.constexpr):
    """Waits for the last kernel's results, and lets the next one's programs come."""
    if OVERLAPS:
        gdc_wait()
        gdc_launch_dependents()
