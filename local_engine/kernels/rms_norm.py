"""RMSNorm fused with the residual addition: one read and one write per tensor instead of three of each."""
# pyright: basic, reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false
# The kernel body is written in Triton's language, whose types are not Python's.

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.launch import begin, next_power_of_2, overlapping


@triton.jit
def _rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    x_stride,
    columns,
    eps,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    begin(OVERLAPS)
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        at = residual_ptr + row * columns + column
        x += tl.load(at, mask=inside, other=0.0).to(tl.float32)
        # Later layers see the rounded sum, so the norm must see it too.
        rounded = x.to(residual_ptr.dtype.element_ty)
        tl.store(at, rounded, mask=inside)
        x = rounded.to(tl.float32)
    inverse = tl.rsqrt(tl.sum(x * x, axis=0) / columns + eps)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * columns + column, (x * inverse * weight).to(out_ptr.dtype.element_ty), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, overlaps: bool = False) -> Tensor:
    """x [rows, columns], each row contiguous; returns a contiguous tensor of x's type."""
    return _launch(x, None, weight, eps, overlaps=overlaps)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    """norm(x + residual); `residual` [rows, columns], contiguous, is overwritten with the sum."""
    return _launch(x, residual, weight, eps, overlaps=False)


def _launch(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float, *, overlaps: bool) -> Tensor:
    rows, columns = x.shape
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    block = next_power_of_2(columns)
    _rms_norm_kernel[(rows,)](
        x,
        x if residual is None else residual,
        weight,
        out,
        x.stride(0),
        columns,
        eps,
        HAS_RESIDUAL=residual is not None,
        BLOCK=block,
        OVERLAPS=overlaps,
        num_warps=max(1, min(16, block // 256)),
        **overlapping(overlaps),
    )
    return out
