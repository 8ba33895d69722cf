"""One row times a dense or e4m3 matrix, fused with what precedes and follows it in a layer: the norm, rounding to e4m3,
the bias, silu and multiply, the residual. A step of one answer is bound by reading the weights and by the number of
launches.

Rounds where the separate kernels round, so that the two differ only in the order of sums.
"""
# pyright: basic, reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false
# The kernel body is written in Triton's language, whose types are not Python's.

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.fp8 import E4M3_MAX
from local_engine.kernels.launch import begin, ceil_divide, next_power_of_2, overlapping

MAX_BLOCK = 1024
MAX_ROWS = 4
# Approximate number of programs resident on a large device: fewer would leave part of it idle.
PROGRAMS = 1024
# With more registers per thread, seven programs share one of Hopper's 132 multiprocessors, and the last hundred of
# PROGRAMS would run after all others, with too few reads in flight to keep the memory busy.
WARPS = 4
MAX_REGISTERS = 64
# A thread reads sixteen e4m3 values at once. Half as many threads have two more rows each, which amortises rounding x;
# with all threads that takes longer than reading the weights.
FP8_WARPS = 2
LINE_BYTES = tl.constexpr(128)


@triton.jit
def _prefetch(weight_ptr, row, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Prefetches these rows of the weight, which no kernel writes, into the L2 cache."""
    LINE: tl.constexpr = LINE_BYTES // (weight_ptr.dtype.element_ty.primitive_bitwidth // 8)
    LINES: tl.constexpr = (BLOCK + LINE - 1) // LINE
    at = weight_ptr + tl.minimum(row, rows - 1).to(tl.int64)[:, None] * columns
    for first in range(0, columns, BLOCK):
        column = tl.minimum(first + tl.arange(0, LINES) * LINE, columns - 1)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; // $0", "=r,l", [(at + column[None, :]).to(tl.uint64)], tl.int32, False, 1
        )


@triton.jit
def _gemv_kernel(
    x_ptr,
    norm_ptr,
    weight_ptr,
    scales_ptr,
    bias_ptr,
    residual_ptr,
    out_ptr,
    rows,
    columns,
    eps,
    NORMS: tl.constexpr,
    SCALES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ADDS: tl.constexpr,
    GATES: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    LARGEST: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    kind = x_ptr.dtype.element_ty
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    if OVERLAPS:
        _prefetch(weight_ptr, row, rows, columns, ROWS, BLOCK)
        if GATES:
            _prefetch(weight_ptr, rows + row, 2 * rows, columns, ROWS, BLOCK)
    begin(OVERLAPS)
    lane = tl.arange(0, BLOCK)
    inverse = 1.0
    scale = 1.0
    inverse_scale = 1.0
    if NORMS or SCALES:
        squares = tl.zeros([BLOCK], tl.float32)
        peaks = tl.zeros([BLOCK], tl.float32)
        for first in range(0, columns, BLOCK):
            part = tl.load(x_ptr + first + lane, mask=first + lane < columns, other=0.0).to(tl.float32)
            squares += part * part
            if SCALES:
                if NORMS:
                    part *= tl.load(norm_ptr + first + lane, mask=first + lane < columns, other=0.0).to(tl.float32)
                peaks = tl.maximum(peaks, tl.abs(part))
        if NORMS:
            inverse = tl.rsqrt(tl.sum(squares, axis=0) / columns + eps)
        if SCALES:
            # Rounding is monotonic: the maximum of the rounded row is the rounded maximum.
            peak = (tl.max(peaks, axis=0) * inverse).to(kind).to(tl.float32)
            scale = tl.where(peak > 0.0, peak / LARGEST, 1.0)
            inverse_scale = 1.0 / scale

    total = tl.zeros([ROWS, BLOCK], tl.float32)
    total_up = tl.zeros([ROWS, BLOCK], tl.float32)
    start = row.to(tl.int64)[:, None] * columns
    up = tl.full([], rows, tl.int64) * columns
    for first in tl.range(0, columns, BLOCK, num_stages=3):
        column = first + lane
        inside = column < columns
        x = tl.load(x_ptr + column, mask=inside, other=0.0).to(tl.float32)
        if NORMS:
            x = x * inverse * tl.load(norm_ptr + column, mask=inside, other=0.0).to(tl.float32)
            x = x.to(kind).to(tl.float32)
        if SCALES:
            x = tl.minimum(tl.maximum(x * inverse_scale, -LARGEST), LARGEST)
            x = x.to(weight_ptr.dtype.element_ty).to(tl.float32)
        at = weight_ptr + start + column[None, :]
        present = (row < rows)[:, None] & inside[None, :]
        total += tl.load(at, mask=present, other=0.0).to(tl.float32) * x[None, :]
        if GATES:
            total_up += tl.load(at + up, mask=present, other=0.0).to(tl.float32) * x[None, :]

    value = tl.sum(total, axis=1)
    if SCALES:
        value = value * scale * tl.load(scales_ptr + row, mask=row < rows, other=0.0)
        value = value.to(kind).to(tl.float32)
    if HAS_BIAS:
        value += tl.load(bias_ptr + row, mask=row < rows, other=0.0).to(tl.float32)
    if GATES:
        value_up = tl.sum(total_up, axis=1)
        if SCALES:
            value_up = value_up * scale * tl.load(scales_ptr + rows + row, mask=row < rows, other=0.0)
            value_up = value_up.to(kind).to(tl.float32)
        if HAS_BIAS:
            value_up += tl.load(bias_ptr + rows + row, mask=row < rows, other=0.0).to(tl.float32)
        gate = value.to(kind).to(tl.float32)
        value = gate * tl.sigmoid(gate) * value_up.to(kind).to(tl.float32)
    if ADDS:
        value = value.to(kind).to(tl.float32) + tl.load(residual_ptr + row, mask=row < rows, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, value.to(out_ptr.dtype.element_ty), mask=row < rows)


def gemv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    scales: Tensor | None = None,
    norm: Tensor | None = None,
    eps: float = 0.0,
    residual: Tensor | None = None,
    gates: bool = False,
    per_program: int | None = None,
    overlaps: bool = False,
) -> Tensor:
    """x [1, columns] @ weight.T + bias as [1, rows]; before it `norm` is applied to x, after it `residual` added, if
    given.

    `scales` float32 [weight rows, 1] belong to e4m3 weights; x is then rounded to e4m3 with a scale of its own, as in
    `quantise_rows`. With `gates` the weight is gate and up, [2 * rows, columns], and the result silu(gate) * up. One
    program computes `per_program` outputs; by default as many as leave enough programs for the device. With `overlaps`
    a program prefetches its weights while the previous kernel ends.
    """
    assert x.shape[0] == 1, "one row"
    columns = weight.shape[1]
    rows = weight.shape[0] // 2 if gates else weight.shape[0]
    out = torch.empty((1, rows), dtype=x.dtype, device=x.device)
    per_program = per_program or rows_per_program(rows, gates=gates)
    warps = WARPS if scales is None else FP8_WARPS
    _gemv_kernel[(ceil_divide(rows, per_program),)](
        x,
        x if norm is None else norm,
        weight,
        x if scales is None else scales,
        x if bias is None else bias,
        x if residual is None else residual,
        out,
        rows,
        columns,
        eps,
        NORMS=norm is not None,
        SCALES=scales is not None,
        HAS_BIAS=bias is not None,
        ADDS=residual is not None,
        GATES=gates,
        ROWS=per_program,
        BLOCK=min(MAX_BLOCK, next_power_of_2(columns)),
        LARGEST=E4M3_MAX,
        OVERLAPS=overlaps,
        num_warps=warps,
        maxnreg=MAX_REGISTERS * WARPS // warps,
        **overlapping(overlaps),
    )
    return out


def rows_per_program(rows: int, *, gates: bool) -> int:
    """A power of two; a gated output reads two rows of the weight."""
    most = MAX_ROWS // 2 if gates else MAX_ROWS
    return max(1, min(most, 1 << max(0, (rows // PROGRAMS).bit_length() - 1)))
