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
from local_engine.kernels.launch import begin, ceil_divide, multiprocessors, next_power_of_2, overlapping

# Columns of a tile, and rows of the weight that it has where that leaves programs enough. The best of twenty shapes on
# an H200 (docs/decisions/kernels-on-an-h200.md).
BLOCK = 512
TILE_ROWS = 4
NARROW_TILE_ROWS = 8
PROGRAMS_PER_SM = 1.5
WARPS = 2
MAX_REGISTERS = 128
STAGES = 3


@triton.jit
def _tile(weight_ptr, row, rows, column, columns):
    """Rows of the weight, [rows, columns]; 0 beyond its sides."""
    present = (row < rows)[:, None] & (column < columns)[None, :]
    return tl.load(weight_ptr + row.to(tl.int64)[:, None] * columns + column[None, :], mask=present, other=0.0)


@triton.jit
def _factor(x_ptr, norm_ptr, column, columns, NORMS: tl.constexpr):
    """x times the norm's weights, and x itself."""
    inside = column < columns
    x = tl.load(x_ptr + column, mask=inside, other=0.0).to(tl.float32)
    normed = x
    if NORMS:
        normed = x * tl.load(norm_ptr + column, mask=inside, other=0.0).to(tl.float32)
    return normed, x


@triton.jit
def _rounded(normed, inverse, inverse_scale, kind: tl.constexpr, narrow: tl.constexpr, LARGEST: tl.constexpr):
    """As `rms_norm` and `quantise_rows` round one after the other."""
    x = (normed * inverse).to(kind).to(tl.float32) * inverse_scale
    return tl.minimum(tl.maximum(x, -LARGEST), LARGEST).to(narrow).to(tl.float32)


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
    STAGES: tl.constexpr,
):
    kind: tl.constexpr = x_ptr.dtype.element_ty
    narrow: tl.constexpr = weight_ptr.dtype.element_ty
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lane = tl.arange(0, BLOCK)
    up_ptr = weight_ptr + tl.full([], rows, tl.int64) * columns
    # No kernel writes the weight: its first tiles are on their way while the previous kernel ends.
    tile = _tile(weight_ptr, row, rows, lane, columns)
    if GATES:
        tile_up = _tile(up_ptr, row, rows, lane, columns)
    begin(OVERLAPS)

    inverse = 1.0
    scale = 1.0
    inverse_scale = 1.0
    if SCALES:
        squares = tl.zeros([BLOCK], tl.float32)
        peaks = tl.zeros([BLOCK], tl.float32)
        for first in range(0, columns, BLOCK):
            normed, x = _factor(x_ptr, norm_ptr, first + lane, columns, NORMS)
            squares += x * x
            peaks = tl.maximum(peaks, tl.abs(normed))
        if NORMS:
            inverse = tl.rsqrt(tl.sum(squares, axis=0) / columns + eps)
        # Rounding is monotonic: the maximum of the rounded row is the rounded maximum.
        peak = (tl.max(peaks, axis=0) * inverse).to(kind).to(tl.float32)
        scale = tl.where(peak > 0.0, peak / LARGEST, 1.0)
        inverse_scale = 1.0 / scale

    squares = tl.zeros([BLOCK], tl.float32)
    normed, x = _factor(x_ptr, norm_ptr, lane, columns, NORMS)
    if SCALES:
        normed = _rounded(normed, inverse, inverse_scale, kind, narrow, LARGEST)
    squares += x * x
    total = tile.to(tl.float32) * normed[None, :]
    if GATES:
        total_up = tile_up.to(tl.float32) * normed[None, :]
    for first in tl.range(BLOCK, columns, BLOCK, num_stages=STAGES):
        column = first + lane
        normed, x = _factor(x_ptr, norm_ptr, column, columns, NORMS)
        if SCALES:
            normed = _rounded(normed, inverse, inverse_scale, kind, narrow, LARGEST)
        squares += x * x
        total += _tile(weight_ptr, row, rows, column, columns).to(tl.float32) * normed[None, :]
        if GATES:
            total_up += _tile(up_ptr, row, rows, column, columns).to(tl.float32) * normed[None, :]

    value = tl.sum(total, axis=1)
    if NORMS and not SCALES:
        inverse = tl.rsqrt(tl.sum(squares, axis=0) / columns + eps)
        value *= inverse
    if SCALES:
        value = value * scale * tl.load(scales_ptr + row, mask=row < rows, other=0.0)
        value = value.to(kind).to(tl.float32)
    if HAS_BIAS:
        value += tl.load(bias_ptr + row, mask=row < rows, other=0.0).to(tl.float32)
    if GATES:
        value_up = tl.sum(total_up, axis=1)
        if NORMS and not SCALES:
            value_up *= inverse
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
    a program reads its first weights while the previous kernel ends.
    """
    assert x.shape[0] == 1, "one row"
    columns = weight.shape[1]
    rows = weight.shape[0] // 2 if gates else weight.shape[0]
    out = torch.empty((1, rows), dtype=x.dtype, device=x.device)
    per_program = per_program or rows_per_program(
        rows, multiprocessors(x.device), is_narrow=scales is not None and not gates
    )
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
        BLOCK=min(BLOCK, next_power_of_2(columns)),
        LARGEST=E4M3_MAX,
        OVERLAPS=overlaps,
        STAGES=STAGES,
        num_warps=WARPS,
        maxnreg=MAX_REGISTERS,
        **overlapping(overlaps),
    )
    return out


def rows_per_program(rows: int, multiprocessors: int, *, is_narrow: bool = False) -> int:
    """A power of two. With gates a program reads twice as many rows of the weight, so e4m3 ones have no more then."""
    most = NARROW_TILE_ROWS if is_narrow else TILE_ROWS
    to_spare = int(rows / (PROGRAMS_PER_SM * multiprocessors))
    return max(1, min(most, 1 << max(0, to_spare.bit_length() - 1)))
