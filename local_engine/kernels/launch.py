"""Small facts that more than one kernel's launch needs."""
# pyright: basic, reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false
# triton.language has no types of its own.

from functools import cache

import torch
import triton.language as tl
from triton import knobs


def dot_type(dtype: torch.dtype) -> tl.dtype:
    """The type of tl.dot's operands for tensors of `dtype`; the sums are always float32.

    Triton's interpreter multiplies the bit patterns of bfloat16 as if they were integers, so there bfloat16 is widened.
    """
    if dtype == torch.float16:
        return tl.float16
    if dtype == torch.bfloat16 and not knobs.runtime.interpret:
        return tl.bfloat16
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
