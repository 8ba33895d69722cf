"""Quantises rows of activations to e4m3 with a scale each, and multiplies two such matrices on the tensor cores.

Per-row scales keep a request's numbers independent of the rest of its batch.
"""
# pyright: basic, reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false
# The kernel body is written in Triton's language, whose types are not Python's.

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels import reference
from local_engine.kernels.launch import next_power_of_2

E4M3_MAX = 448.0


@dataclass(frozen=True, slots=True)
class Fp8Weight:
    """values e4m3 [rows, columns]; scales float32 [rows, 1]; weight = value * scale."""

    values: Tensor
    scales: Tensor


@triton.jit
def _quantise_rows_kernel(x_ptr, out_ptr, scales_ptr, columns, x_stride, LARGEST: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    peak = tl.max(tl.abs(x), axis=0)
    scale = tl.where(peak > 0.0, peak / LARGEST, 1.0)
    scaled = tl.minimum(tl.maximum(x * (1.0 / scale), -LARGEST), LARGEST)
    tl.store(out_ptr + row * columns + column, scaled.to(out_ptr.dtype.element_ty), mask=inside)
    tl.store(scales_ptr + row, scale)


def quantise_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """(e4m3 [rows, columns], float32 scales [rows, 1]) of x [rows, columns], columns contiguous; a row of zeros has
    scale 1."""
    rows, columns = x.shape
    out = torch.empty((rows, columns), dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty((rows, 1), dtype=torch.float32, device=x.device)
    block = next_power_of_2(columns)
    _quantise_rows_kernel[(rows,)](
        x, out, scales, columns, x.stride(0), LARGEST=E4M3_MAX, BLOCK=block, num_warps=max(1, min(16, block // 512))
    )
    return out, scales


def quantise_weight(weight: Tensor) -> Fp8Weight:
    """A weight [rows, columns] with one scale per output row."""
    return Fp8Weight(*reference.quantise_rows_fp8(weight))


def scaled_matmul(x: Tensor, x_scales: Tensor, weight: Fp8Weight, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """(x * x_scales) @ (weight.values * weight.scales).T as [m, rows] in `dtype`; on a CPU the reference computes it.

    On CUDA both dimensions of the weight must be multiples of 16, and the result is bfloat16.
    """
    if not x.is_cuda:
        return reference.scaled_matmul(x, x_scales, weight.values, weight.scales, dtype)
    return torch._scaled_mm(
        x, weight.values.T, scale_a=x_scales, scale_b=weight.scales.T, out_dtype=dtype, use_fast_accum=True
    )


def fp8_matmul(x: Tensor, weight: Fp8Weight) -> Tensor:
    """x [m, columns] @ weight.T, with x quantised by rows first; returns [m, rows] in x's type."""
    values, scales = quantise_rows(x)
    return scaled_matmul(values, scales, weight, x.dtype)
