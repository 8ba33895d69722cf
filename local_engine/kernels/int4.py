"""Four-bit weights times sixteen-bit activations: unpacked in registers and never written out, except for prefill's
large products.

Rows of weights are packed like llama.cpp's Q4 blocks: byte b of a block of 32 contains element b in its low nibble and
element b + 16 in its high nibble. Each group of weights has a scale and an offset, weight = nibble * scale + offset:
Q4_1 as it is, Q4_0 with offset = -8 * scale, AWQ and GPTQ with offset = -zero * scale.
"""
# pyright: basic, reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false
# pyright: reportOperatorIssue=false
# Kernel bodies are written in Triton's language, whose types are not Python's.

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.launch import ceil_divide, dot_type, next_power_of_2

LEVELS = 15
# Above this many rows each weight would be unpacked more than once: unpack all of it, then use the vendor's library.
MAX_FUSED_ROWS = 64
# Outputs of a program of a single row's product, and blocks of 32 columns that it takes at once.
GEMV_ROWS = 8
GEMV_BLOCKS = 64
GEMV_STAGES = 1
# Of 2^23 in float32.
EXPONENT = 0x4B000000
# Outputs of a program of several rows' product. From MANY_ROWS rows on each weight is used more often than it is
# unpacked, and larger tiles pay where they leave as many programs.
GEMM_ROWS = 32
MANY_ROWS = 32
GEMM_PROGRAMS = 96


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
def load_weights(
    packed_ptr,
    scales_ptr,
    offsets_ptr,
    row,
    first_block,
    rows,
    columns,
    GROUP: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Low and high halves, [rows, BLOCKS, 16] float32."""
    block = first_block + tl.arange(0, BLOCKS)
    inside = (row < rows)[:, None] & (block < columns // 32)[None, :]
    at = row.to(tl.int64)[:, None] * (columns // 32) + block[None, :]
    packed = tl.load(
        packed_ptr + at[:, :, None] * 16 + tl.arange(0, 16)[None, None, :], mask=inside[:, :, None], other=0
    )
    group_at = row.to(tl.int64)[:, None] * (columns // GROUP) + block[None, :] // (GROUP // 32)
    scale = tl.load(scales_ptr + group_at, mask=inside, other=0.0).to(tl.float32)
    offset = tl.load(offsets_ptr + group_at, mask=inside, other=0.0).to(tl.float32)
    wide = packed.to(tl.int32)
    low = _as_float(wide & 0xF) * scale[:, :, None] + offset[:, :, None]
    high = _as_float((wide >> 4) & 0xF) * scale[:, :, None] + offset[:, :, None]
    return low, high


@triton.jit
def _products(words, x, exponent, PLACE: tl.constexpr):
    """x [words] times each word's nibble at this bit, [rows, words] float32; PLACE up to 16.

    Three instructions: with the exponent of 2^23, the bits where they stand are 2^23 + nibble * 2^PLACE. Subtracting
    2^23 is exact, and x is divided by 2^PLACE. As an argument the exponent is in a register, which the first one needs.
    """
    shifted = ((words & (15 << PLACE)) | exponent).to(tl.float32, bitcast=True) - 8388608.0
    return shifted * (x * (1.0 / (1 << PLACE)))[None, :]


@triton.jit
def _gemv_kernel(
    x_ptr,
    words_ptr,
    scales_ptr,
    offsets_ptr,
    out_ptr,
    rows,
    columns,
    exponent,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
    STAGES: tl.constexpr,
):
    WORDS: tl.constexpr = BLOCKS * 4
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    blocks = columns // 32
    acc = tl.zeros([ROWS, BLOCKS], tl.float32)
    for first in tl.range(0, blocks, BLOCKS, num_stages=STAGES):
        word = first * 4 + tl.arange(0, WORDS)
        inside = word < blocks * 4
        present = (row < rows)[:, None] & inside[None, :]
        words = tl.load(words_ptr + row.to(tl.int64)[:, None] * (blocks * 4) + word[None, :], mask=present, other=0)
        upper = words >> 16
        total = tl.zeros([ROWS, WORDS], tl.float32)
        x_sum = tl.zeros([WORDS], tl.float32)
        for nibble in tl.static_range(8):
            # Byte nibble // 2 of word w is byte 4 w + nibble // 2 of the block; its high half is 16 columns further.
            column = word // 4 * 32 + nibble % 2 * 16 + word % 4 * 4 + nibble // 2
            x = tl.load(x_ptr + column, mask=inside, other=0.0).to(tl.float32)
            # From bit 20 on a nibble would reach the exponent: those are taken from the upper half.
            if nibble < 5:
                total += _products(words, x, exponent, 4 * nibble)
            else:
                total += _products(upper, x, exponent, 4 * nibble - 16)
            x_sum += x
        block = first + tl.arange(0, BLOCKS)
        group_at = row.to(tl.int64)[:, None] * (columns // GROUP) + block[None, :] // (GROUP // 32)
        there = (row < rows)[:, None] & (block < blocks)[None, :]
        scale = tl.load(scales_ptr + group_at, mask=there, other=0.0).to(tl.float32)
        offset = tl.load(offsets_ptr + group_at, mask=there, other=0.0).to(tl.float32)
        of_blocks = tl.sum(tl.reshape(total, [ROWS, BLOCKS, 4]), axis=2)
        acc += of_blocks * scale + tl.sum(tl.reshape(x_sum, [BLOCKS, 4]), axis=1)[None, :] * offset
    tl.store(out_ptr + row, tl.sum(acc, axis=1).to(out_ptr.dtype.element_ty), mask=row < rows)


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
        low, high = load_weights(packed_ptr, scales_ptr, offsets_ptr, row, first_block, rows, columns, GROUP, BLOCKS)
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
    low, high = load_weights(packed_ptr, scales_ptr, offsets_ptr, row, first_block, rows, columns, GROUP, BLOCKS)
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
        blocks = min(GEMV_BLOCKS, next_power_of_2(half // 16))
        _gemv_kernel[(ceil_divide(rows, GEMV_ROWS),)](
            x,
            weight.packed.view(torch.int32),
            weight.scales,
            weight.offsets,
            out,
            rows,
            2 * half,
            EXPONENT,
            GROUP=weight.group,
            ROWS=GEMV_ROWS,
            BLOCKS=blocks,
            STAGES=GEMV_STAGES,
            num_warps=max(1, blocks // 32),
        )
        return out
    block_m = max(16, next_power_of_2(min(x.shape[0], 64)))
    per_program = rows_per_program(rows, x.shape[0])
    _gemm_kernel[(ceil_divide(rows, per_program), ceil_divide(x.shape[0], block_m))](
        x,
        *weights,
        out,
        x.shape[0],
        rows,
        2 * half,
        x.stride(0),
        GROUP=weight.group,
        BLOCK_M=block_m,
        ROWS=per_program,
        BLOCKS=4,
        COMPUTE=dot_type(x.dtype),
        num_warps=4,
        num_stages=3,
    )
    return out


def rows_per_program(rows: int, x_rows: int) -> int:
    """Outputs of a program of the product with `x_rows` rows: 32, 64 or 128."""
    sizes = (4 * GEMM_ROWS, 2 * GEMM_ROWS) if x_rows >= MANY_ROWS else ()
    return next((size for size in sizes if rows // size >= GEMM_PROGRAMS), GEMM_ROWS)
