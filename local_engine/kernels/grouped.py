"""Products of many experts in one launch: each program multiplies a tile of pairs (expert_routing.py) by a strip of its
expert's weights. Unused experts are not read.

The block sizes have not been measured on hardware; they assemble for Hopper without spilling.
"""
# pyright: basic, reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false
# Kernel bodies are written in Triton's language, whose types are not Python's.

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.expert_routing import Tiles
from local_engine.kernels.fp8 import Fp8Weight
from local_engine.kernels.int4 import Int4Weight, load_weights
from local_engine.kernels.launch import ceil_divide, dot_type, next_power_of_2

SMALLEST, LARGEST = 16, 128
# float32 is for comparison, and its products take more registers.
LARGEST_FLOAT32 = 32
# Bytes of a weight's row that a program multiplies at once: two cache lines, or one for tiles so high that more would
# not leave memory for several stages.
ROW_BYTES, HIGH_ROW_BYTES = 256, 128


@dataclass(frozen=True, slots=True)
class Blocks:
    """Block sizes of one program (pairs, outputs), and its launch parameters."""

    height: int
    outputs: int
    warps: int
    stages: int


def tile_height(pairs: int, experts: int, dtype: torch.dtype) -> int:
    """A power of two near the average number of pairs per expert: higher tiles read weights less often, lower ones
    waste less computation. Tensor cores multiply at least 16 rows."""
    largest = LARGEST_FLOAT32 if dtype == torch.float32 else LARGEST
    return max(SMALLEST, min(largest, next_power_of_2(ceil_divide(pairs, experts))))


def blocks_for(height: int, *, gates: bool) -> Blocks:
    """Decoding is memory-bound: narrow strips give enough programs for the few experts of one answer, each prefetching
    far ahead. High tiles of prompts are bound by the tensor cores. A gated output uses two rows of the weight."""
    if height <= 32:
        return Blocks(height, 32 if gates else 64, warps=4, stages=4)
    return Blocks(height, 64 if gates else 128, warps=4 if height == 64 else 8, stages=3)


@triton.jit
def _gate(gate, up, kind):
    """silu(gate) * up, both rounded first, as in the separate kernels."""
    gate = gate.to(kind).to(tl.float32)
    return gate * tl.sigmoid(gate) * up.to(kind).to(tl.float32)


@triton.jit
def _grouped_kernel(
    x_ptr,
    x_scales_ptr,
    weight_ptr,
    scales_ptr,
    out_ptr,
    tile_experts_ptr,
    tile_pairs_ptr,
    outputs,
    columns,
    USED: tl.constexpr,
    GATES: tl.constexpr,
    SCALES: tl.constexpr,
    HEIGHT: tl.constexpr,
    OUTPUTS: tl.constexpr,
    COLUMNS: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    tile = tl.program_id(1)
    expert = tl.load(tile_experts_ptr + tile)
    if expert >= 0:
        pair = tl.load(tile_pairs_ptr + tile * HEIGHT + tl.arange(0, HEIGHT))
        is_there = pair >= 0
        x_row = pair // USED
        output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
        lane = tl.arange(0, COLUMNS)
        kind = out_ptr.dtype.element_ty
        height = outputs * 2 if GATES else outputs
        x_at = x_ptr + x_row.to(tl.int64)[:, None] * columns + lane[None, :]
        row = expert.to(tl.int64) * height + output
        at = weight_ptr + row[None, :] * columns + lane[:, None]
        up_at = at + tl.full([], outputs, tl.int64) * columns
        is_output = (output < outputs)[None, :]
        total = tl.zeros([HEIGHT, OUTPUTS], tl.float32)
        total_up = tl.zeros([HEIGHT, OUTPUTS], tl.float32)
        for first in range(0, columns, COLUMNS):
            inside = first + lane < columns
            x = tl.load(x_at + first, mask=is_there[:, None] & inside[None, :], other=0.0).to(COMPUTE)
            weight = tl.load(at + first, mask=inside[:, None] & is_output, other=0.0).to(COMPUTE)
            total = tl.dot(x, weight, total, input_precision="ieee")
            if GATES:
                weight = tl.load(up_at + first, mask=inside[:, None] & is_output, other=0.0).to(COMPUTE)
                total_up = tl.dot(x, weight, total_up, input_precision="ieee")
        if SCALES:
            x_scale = tl.load(x_scales_ptr + x_row, mask=is_there, other=0.0)[:, None]
            total *= x_scale * tl.load(scales_ptr + row, mask=output < outputs, other=0.0)[None, :]
            if GATES:
                up_scale = tl.load(scales_ptr + row + outputs, mask=output < outputs, other=0.0)
                total_up *= x_scale * up_scale[None, :]
        if GATES:
            total = _gate(total, total_up, kind)
        out_at = out_ptr + pair.to(tl.int64)[:, None] * outputs + output[None, :]
        tl.store(out_at, total.to(kind), mask=is_there[:, None] & is_output)


def grouped_matmul(
    x: Tensor,
    weight: Tensor | Fp8Weight,
    tiles: Tiles,
    pairs: int,
    *,
    used: int,
    x_scales: Tensor | None = None,
    gates: bool,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """[pairs, outputs] in `dtype` (default: x's): row p is row p // used of x [rows, columns] times the weights
    [outputs, columns] of the expert whose tile contains p. Rows of pairs in no tile are not written.

    Weights are stacked by expert, [experts * outputs, columns]; with `gates` there are twice as many outputs, gate and
    up, and the result is silu(gate) * up. e4m3 weights multiply e4m3 rows with scales `x_scales` [rows, 1].
    """
    values, scales = (weight.values, weight.scales) if isinstance(weight, Fp8Weight) else (weight, None)
    experts, (_, columns) = tiles.count, values.shape
    outputs = values.shape[0] // experts // (2 if gates else 1)
    out = torch.empty((pairs, outputs), dtype=dtype or x.dtype, device=x.device)
    blocks = blocks_for(tiles.height, gates=gates)
    row_bytes = ROW_BYTES if tiles.height <= 32 else HIGH_ROW_BYTES
    _grouped_kernel[(ceil_divide(outputs, blocks.outputs), len(tiles.experts))](
        x,
        x if x_scales is None else x_scales,
        values,
        x if scales is None else scales,
        out,
        tiles.experts,
        tiles.pairs,
        outputs,
        columns,
        USED=used,
        GATES=gates,
        SCALES=scales is not None,
        HEIGHT=blocks.height,
        OUTPUTS=blocks.outputs,
        COLUMNS=row_bytes // values.element_size(),
        COMPUTE=dot_type(values.dtype),
        num_warps=blocks.warps,
        num_stages=blocks.stages,
    )
    return out


@triton.jit
def _grouped_int4_kernel(
    x_ptr,
    packed_ptr,
    scales_ptr,
    offsets_ptr,
    out_ptr,
    tile_experts_ptr,
    tile_pairs_ptr,
    outputs,
    columns,
    USED: tl.constexpr,
    GATES: tl.constexpr,
    GROUP: tl.constexpr,
    HEIGHT: tl.constexpr,
    OUTPUTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    tile = tl.program_id(1)
    expert = tl.load(tile_experts_ptr + tile)
    if expert >= 0:
        pair = tl.load(tile_pairs_ptr + tile * HEIGHT + tl.arange(0, HEIGHT))
        is_there = pair >= 0
        output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
        inner = tl.arange(0, BLOCKS * 16)
        kind = out_ptr.dtype.element_ty
        begin = expert * (outputs * 2 if GATES else outputs)
        x_at = x_ptr + (pair // USED).to(tl.int64)[:, None] * columns
        total = tl.zeros([HEIGHT, OUTPUTS], tl.float32)
        total_up = tl.zeros([HEIGHT, OUTPUTS], tl.float32)
        for first_block in range(0, columns // 32, BLOCKS):
            column = (first_block + inner // 16) * 32 + inner % 16
            present = is_there[:, None] & (column < columns)[None, :]
            x_low = tl.load(x_at + column[None, :], mask=present, other=0.0).to(COMPUTE)
            x_high = tl.load(x_at + column[None, :] + 16, mask=present, other=0.0).to(COMPUTE)
            for part in tl.static_range(2 if GATES else 1):
                low, high = load_weights(
                    packed_ptr,
                    scales_ptr,
                    offsets_ptr,
                    begin + part * outputs + output,
                    first_block,
                    begin + (part + 1) * outputs,
                    columns,
                    GROUP,
                    BLOCKS,
                )
                low = tl.trans(tl.reshape(low, [OUTPUTS, BLOCKS * 16]).to(COMPUTE))
                high = tl.trans(tl.reshape(high, [OUTPUTS, BLOCKS * 16]).to(COMPUTE))
                if part == 0:
                    total = tl.dot(x_low, low, total, input_precision="ieee")
                    total = tl.dot(x_high, high, total, input_precision="ieee")
                else:
                    total_up = tl.dot(x_low, low, total_up, input_precision="ieee")
                    total_up = tl.dot(x_high, high, total_up, input_precision="ieee")
        if GATES:
            total = _gate(total, total_up, kind)
        out_at = out_ptr + pair.to(tl.int64)[:, None] * outputs + output[None, :]
        tl.store(out_at, total.to(kind), mask=is_there[:, None] & (output < outputs)[None, :])


def grouped_int4_matmul(x: Tensor, weight: Int4Weight, tiles: Tiles, pairs: int, *, used: int, gates: bool) -> Tensor:
    """`grouped_matmul` with four-bit weights, unpacked in registers; activations are not quantised."""
    columns = 2 * weight.packed.shape[1]
    outputs = weight.packed.shape[0] // tiles.count // (2 if gates else 1)
    out = torch.empty((pairs, outputs), dtype=x.dtype, device=x.device)
    strip = 32 if gates or tiles.height <= 32 else 64
    _grouped_int4_kernel[(ceil_divide(outputs, strip), len(tiles.experts))](
        x,
        weight.packed,
        weight.scales,
        weight.offsets,
        out,
        tiles.experts,
        tiles.pairs,
        outputs,
        columns,
        USED=used,
        GATES=gates,
        GROUP=weight.group,
        HEIGHT=tiles.height,
        OUTPUTS=strip,
        BLOCKS=4,
        COMPUTE=dot_type(x.dtype),
        num_warps=4 if tiles.height <= 64 else 8,
        num_stages=3,
    )
    return out
