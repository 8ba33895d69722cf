"""Four-bit weights times sixteen-bit activations: unpacked in registers and never written out, except for prefill's
large products.

Rows of weights are packed like llama.cpp's Q4 blocks: byte b of a block of 32 contains element b in its low nibble and
element b + 16 in its high nibble. Each group of weights has a scale and an offset, weight = nibble * scale + offset:
Q4_1 as it is, Q4_0 with offset = -8 * scale, AWQ and GPTQ with offset = -zero * scale.
"""
# pyright: basic, reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false
# Kernel bodies are written in Triton's language, whose types are not Python's.

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.launch import ceil_divide, dot_type, next_power_of_2

LEVELS = 15
# Above this many rows the product is compute-bound: unpack once, then use the vendor's library.
MAX_FUSED_ROWS = 128


@dataclass(frozen=True, slots=True)
class Int4Weight:
    """packed uint8 [rows, columns / 2]; scales and offsets [rows, columns / group], group a multiple of 32."""

    packed: Tensor
    scales: Tensor
    offsets: Tensor

    @property
    def group(self) -> int:
        return 2 * self.packed.shape[1] // self.scales.shape[1]


def pack(nibbles: Tensor) -> Tensor:
    """uint8 [rows, columns / 2] of nibbles 0..15 [rows, columns], columns a multiple of 32."""
    rows, columns = nibbles.shape
    blocks = nibbles.to(torch.uint8).view(rows, columns // 32, 2, 16)
    return (blocks[:, :, 0] | (blocks[:, :, 1] << 4)).reshape(rows, columns // 2).contiguous()


def quantise(weight: Tensor, group: int = 128, dtype: torch.dtype = torch.bfloat16) -> Int4Weight:
    """Round each group of `weight` [rows, columns] to sixteen levels between its minimum and maximum.

    Scales and offsets are rounded to `dtype` before the nibbles are chosen, so that their rounding error is
    compensated.
    """
    rows, columns = weight.shape
    if columns % group or group % 32:
        raise ValueError(
            f"{columns} columns cannot be cut into groups of {group}: groups are multiples of 32 that divide them"
        )
    grouped = weight.float().view(rows, columns // group, group)
    low, high = grouped.amin(-1), grouped.amax(-1)
    scales = ((high - low) / LEVELS).clamp_min(torch.finfo(torch.bfloat16).tiny).to(dtype)
    offsets = low.to(dtype)
    nibbles = ((grouped - offsets.float()[..., None]) / scales.float()[..., None]).round().clamp(0, LEVELS)
    return Int4Weight(pack(nibbles.view(rows, columns)), scales, offsets)


@triton.jit
def _as_float(nibble):
    """0..15 as float32 via the exponent of 2^23: an OR and a subtraction instead of a slow conversion."""
    return (nibble | 0x4B000000).to(tl.float32, bitcast=True) - 8388608.0


@triton.jit
def _unpack(weight, scale, offset, ROWS: tl.constexpr, BLOCKS: tl.constexpr):
    """Low and high halves [ROWS, BLOCKS, 16] float32 from packed bytes [ROWS, BLOCKS, 16]; scale and offset [ROWS,
    BLOCKS]."""
    wide = weight.to(tl.int32)
    low = _as_float(wide & 0xF) * scale[:, :, None] + offset[:, :, None]
    high = _as_float((wide >> 4) & 0xF) * scale[:, :, None] + offset[:, :, None]
    return low, high


@triton.jit
def load_weights(
    packed_ptr,
    scales_ptr,
    offsets_ptr,
    row,
    first_block,
    rows,
    columns,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    block = first_block + tl.arange(0, BLOCKS)
    inside = (row < rows)[:, None] & (block < columns // 32)[None, :]
    at = row.to(tl.int64)[:, None] * (columns // 32) + block[None, :]
    packed = tl.load(
        packed_ptr + at[:, :, None] * 16 + tl.arange(0, 16)[None, None, :], mask=inside[:, :, None], other=0
    )
    group_at = row.to(tl.int64)[:, None] * (columns // GROUP) + block[None, :] // (GROUP // 32)
    scale = tl.load(scales_ptr + group_at, mask=inside, other=0.0).to(tl.float32)
    offset = tl.load(offsets_ptr + group_at, mask=inside, other=0.0).to(tl.float32)
    return _unpack(packed, scale, offset, ROWS, BLOCKS)


@triton.jit
def _gemv_kernel(
    x_ptr,
    packed_ptr,
    scales_ptr,
    offsets_ptr,
    out_ptr,
    rows,
    columns,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    acc = tl.zeros([ROWS, BLOCKS, 16], tl.float32)
    for first_block in tl.range(0, columns // 32, BLOCKS, num_stages=3):
        low, high = load_weights(
            packed_ptr, scales_ptr, offsets_ptr, row, first_block, rows, columns, GROUP, ROWS, BLOCKS
        )
        block = first_block + tl.arange(0, BLOCKS)
        x_at = x_ptr + block[:, None] * 32 + tl.arange(0, 16)[None, :]
        inside = (block < columns // 32)[:, None]
        x_low = tl.load(x_at, mask=inside, other=0.0).to(tl.float32)
        x_high = tl.load(x_at + 16, mask=inside, other=0.0).to(tl.float32)
        acc += low * x_low[None, :, :] + high * x_high[None, :, :]
    total = tl.sum(tl.reshape(acc, [ROWS, BLOCKS * 16]), axis=1)
    tl.store(out_ptr + row, total.to(out_ptr.dtype.element_ty), mask=row < rows)


@triton.jit(do_not_specialize=["x_rows"])
def _gemm_kernel(
    x_ptr,
    packed_ptr,
    scales_ptr,
    offsets_ptr,
    out_ptr,
    x_rows,
    rows,
    columns,
    x_stride,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    x_row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros([BLOCK_M, ROWS], tl.float32)
    inner = tl.arange(0, BLOCKS * 16)
    for first_block in range(0, columns // 32, BLOCKS):
        low, high = load_weights(
            packed_ptr, scales_ptr, offsets_ptr, row, first_block, rows, columns, GROUP, ROWS, BLOCKS
        )
        column = (first_block + inner // 16) * 32 + inner % 16
        inside = (x_row < x_rows)[:, None] & (column < columns)[None, :]
        x_at = x_ptr + x_row.to(tl.int64)[:, None] * x_stride + column[None, :]
        x_low = tl.load(x_at, mask=inside, other=0.0).to(COMPUTE)
        x_high = tl.load(x_at + 16, mask=inside, other=0.0).to(COMPUTE)
        low = tl.reshape(low, [ROWS, BLOCKS * 16]).to(COMPUTE)
        high = tl.reshape(high, [ROWS, BLOCKS * 16]).to(COMPUTE)
        acc += tl.dot(x_low, tl.trans(low), input_precision="ieee")
        acc += tl.dot(x_high, tl.trans(high), input_precision="ieee")
    out_at = out_ptr + x_row.to(tl.int64)[:, None] * rows + row[None, :]
    tl.store(out_at, acc.to(out_ptr.dtype.element_ty), mask=(x_row < x_rows)[:, None] & (row < rows)[None, :])


@triton.jit
def _dequantise_kernel(
    packed_ptr,
    scales_ptr,
    offsets_ptr,
    out_ptr,
    rows,
    columns,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    first_block = tl.program_id(1) * BLOCKS
    low, high = load_weights(packed_ptr, scales_ptr, offsets_ptr, row, first_block, rows, columns, GROUP, ROWS, BLOCKS)
    block = first_block + tl.arange(0, BLOCKS)
    inside = ((row < rows)[:, None] & (block < columns // 32)[None, :])[:, :, None]
    at = row.to(tl.int64)[:, None, None] * columns + block[None, :, None] * 32 + tl.arange(0, 16)[None, None, :]
    tl.store(out_ptr + at, low.to(out_ptr.dtype.element_ty), mask=inside)
    tl.store(out_ptr + at + 16, high.to(out_ptr.dtype.element_ty), mask=inside)


def dequantise(weight: Int4Weight, dtype: torch.dtype) -> Tensor:
    rows, half = weight.packed.shape
    out = torch.empty((rows, 2 * half), dtype=dtype, device=weight.packed.device)
    grid = (ceil_divide(rows, 16), ceil_divide(half // 16, 4))
    _dequantise_kernel[grid](
        weight.packed,
        weight.scales,
        weight.offsets,
        out,
        rows,
        2 * half,
        GROUP=weight.group,
        ROWS=16,
        BLOCKS=4,
        num_warps=4,
    )
    return out


def int4_matmul(x: Tensor, weight: Int4Weight) -> Tensor:
    """x [m, columns] @ weight.T, columns of x contiguous; returns [m, rows] in x's type, accumulated in float32."""
    if x.shape[0] > MAX_FUSED_ROWS:
        return x @ dequantise(weight, x.dtype).T
    rows, half = weight.packed.shape
    out = torch.empty((x.shape[0], rows), dtype=x.dtype, device=x.device)
    weights = (weight.packed, weight.scales, weight.offsets)
    if x.shape[0] == 1:
        _gemv_kernel[(ceil_divide(rows, 8),)](
            x, *weights, out, rows, 2 * half, GROUP=weight.group, ROWS=8, BLOCKS=16, num_warps=4, num_stages=3
        )
        return out
    block_m = max(16, next_power_of_2(min(x.shape[0], 64)))
    _gemm_kernel[(ceil_divide(rows, 32), ceil_divide(x.shape[0], block_m))](
        x,
        *weights,
        out,
        x.shape[0],
        rows,
        2 * half,
        x.stride(0),
        GROUP=weight.group,
        BLOCK_M=block_m,
        ROWS=32,
        BLOCKS=4,
        COMPUTE=dot_type(x.dtype),
        num_warps=4,
        num_stages=3,
    )
    return out
