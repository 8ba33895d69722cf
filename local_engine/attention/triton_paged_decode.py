"""Attention of one new token per sequence over its paged cache: parallel splits of the cache, then one reduction.

All query heads that share a KV head are in one tile (GQA packing), so each cached key is read from memory once. Each
split stores its partial output and the log-sum-exp of its scores, by which the second kernel weights the splits. Knows
nothing of models.
"""
# pyright: basic, reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false
# Kernel bodies are written in Triton's language, whose types are not Python's.

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.attention.triton_tiles import (
    LOG2_E,
    MIN_SPLIT_TOKENS,
    attend,
    choose_splits,
    group_rows,
    load_tile,
)
from local_engine.kernels.launch import begin, dot_type, next_power_of_2, overlapping

BLOCK_N = 64


# Batch sizes and slice offsets vary from step to step: none of them may cause another compilation.
@triton.jit(do_not_specialize=["table_stride"], do_not_specialize_on_alignment=["block_table_ptr", "seq_lens_ptr"])
def _split_kernel(
    q_ptr,
    k_cache_ptr,
    v_cache_ptr,
    block_table_ptr,
    seq_lens_ptr,
    partial_ptr,
    lse_ptr,
    qk_scale,
    q_stride,
    table_stride,
    k_block_stride,
    k_slot_stride,
    v_block_stride,
    v_slot_stride,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_BLOCK: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_BLOCK: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MIN_SPLIT: tl.constexpr,
    COMPUTE: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    begin(OVERLAPS)
    kv_head = tl.program_id(0)
    row = tl.program_id(1)
    split = tl.program_id(2)
    kv_heads = tl.num_programs(0)
    splits = tl.num_programs(2)

    length = tl.load(seq_lens_ptr + row)
    oldest = 0
    if WINDOW > 0:
        oldest = tl.maximum(length - WINDOW, 0) // BLOCK_N * BLOCK_N
    share = tl.maximum(tl.cdiv(length - oldest, splits), MIN_SPLIT)
    share = tl.cdiv(share, BLOCK_N) * BLOCK_N
    start = oldest + split * share
    end = tl.minimum(start + share, length)

    group = tl.arange(0, GROUP_BLOCK)
    lane = tl.arange(0, DIM_BLOCK)
    in_group = group < GROUP
    in_dim = lane < HEAD_DIM
    head = kv_head * GROUP + group
    q_at = q_ptr + row.to(tl.int64) * q_stride + head[:, None] * HEAD_DIM + lane[None, :]
    q = tl.load(q_at, mask=in_group[:, None] & in_dim[None, :], other=0.0).to(COMPUTE)

    peak = tl.full([GROUP_BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_BLOCK], tl.float32)
    acc = tl.zeros([GROUP_BLOCK, DIM_BLOCK], tl.float32)
    table = block_table_ptr + row.to(tl.int64) * table_stride
    for first in range(start, end, BLOCK_N):
        token = first + tl.arange(0, BLOCK_N)
        present = token < end
        k = load_tile(
            k_cache_ptr, table, token, present, kv_head, k_block_stride, k_slot_stride, BLOCK_SIZE, HEAD_DIM, DIM_BLOCK
        ).to(COMPUTE)
        v = load_tile(
            v_cache_ptr, table, token, present, kv_head, v_block_stride, v_slot_stride, BLOCK_SIZE, HEAD_DIM, DIM_BLOCK
        ).to(COMPUTE)
        seen = present
        if WINDOW > 0:
            seen = present & (token >= length - WINDOW)
        peak, total, acc = attend(q, k, v, seen[None, :], qk_scale, peak, total, acc, True)

    safe_total = tl.where(total > 0, total, 1.0)
    acc = acc / safe_total[:, None]
    lse = tl.where(total > 0, peak + tl.log2(safe_total), float("-inf"))
    at = (row.to(tl.int64) * kv_heads * GROUP + head) * splits + split
    tl.store(lse_ptr + at, lse, mask=in_group)
    out_at = partial_ptr + at[:, None] * HEAD_DIM + lane[None, :]
    tl.store(out_at, acc.to(partial_ptr.dtype.element_ty), mask=in_group[:, None] & in_dim[None, :])


@triton.jit
def _reduce_kernel(
    partial_ptr,
    lse_ptr,
    out_ptr,
    splits,
    HEAD_DIM: tl.constexpr,
    DIM_BLOCK: tl.constexpr,
    SPLIT_BLOCK: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    begin(OVERLAPS)
    at = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, SPLIT_BLOCK)
    lane = tl.arange(0, DIM_BLOCK)
    in_dim = lane < HEAD_DIM
    lse = tl.load(lse_ptr + at * splits + split, mask=split < splits, other=float("-inf"))
    peak = tl.max(lse, axis=0)
    # An empty sequence (a padded row of a captured graph) has no splits and yields zeros.
    peak = tl.where(peak == float("-inf"), 0.0, peak)
    weights = tl.exp2(lse - peak)
    total = tl.sum(weights, axis=0)
    partial_at = partial_ptr + (at * splits + split)[:, None] * HEAD_DIM + lane[None, :]
    partial = tl.load(partial_at, mask=(lse > float("-inf"))[:, None] & in_dim[None, :], other=0.0).to(tl.float32)
    out = tl.sum(partial * weights[:, None], axis=0) / tl.where(total > 0, total, 1.0)
    tl.store(out_ptr + at * HEAD_DIM + lane, out.to(out_ptr.dtype.element_ty), mask=in_dim)


def paged_decode(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    *,
    scale: float,
    window: int = 0,
    splits: int | None = None,
    out: Tensor | None = None,
    overlaps: bool = False,
) -> Tensor:
    """Attention output [batch, heads, dim] of q [batch, heads, dim] (heads and dim contiguous).

    Caches [blocks, block_size, kv_heads, dim]; block_table int32 [batch, max_blocks]; seq_lens int32 [batch] counts
    cached tokens including the current one, and 0 gives a row of zeros. A caller that captures a graph fixes `splits`;
    by default it is chosen so that the grid fills the device.
    """
    batch, heads, dim = q.shape
    _, block_size, kv_heads, _ = k_cache.shape
    splits = splits or choose_splits(batch * kv_heads, block_table.shape[1] * block_size, q.device)
    if out is None:
        out = torch.empty((batch, heads, dim), dtype=q.dtype, device=q.device)
    # A single split needs no second pass: the first kernel writes the result directly.
    partial = out if splits == 1 else torch.empty((batch, heads, splits, dim), dtype=torch.float32, device=q.device)
    lse = torch.empty((batch, heads, splits), dtype=torch.float32, device=q.device)
    dim_block = next_power_of_2(dim)
    _split_kernel[(kv_heads, batch, splits)](
        q,
        k_cache,
        v_cache,
        block_table,
        seq_lens,
        partial,
        lse,
        scale * LOG2_E,
        q.stride(0),
        block_table.stride(0),
        k_cache.stride(0),
        k_cache.stride(1),
        v_cache.stride(0),
        v_cache.stride(1),
        BLOCK_SIZE=block_size,
        WINDOW=window,
        GROUP=heads // kv_heads,
        GROUP_BLOCK=group_rows(heads // kv_heads),
        HEAD_DIM=dim,
        DIM_BLOCK=dim_block,
        BLOCK_N=BLOCK_N,
        MIN_SPLIT=MIN_SPLIT_TOKENS,
        COMPUTE=dot_type(q.dtype),
        OVERLAPS=overlaps,
        num_warps=4,
        num_stages=3,
        **overlapping(overlaps),
    )
    if splits > 1:
        _reduce_kernel[(batch * heads,)](
            partial,
            lse,
            out,
            splits,
            HEAD_DIM=dim,
            DIM_BLOCK=dim_block,
            SPLIT_BLOCK=next_power_of_2(splits),
            OVERLAPS=overlaps,
            num_warps=2,
            **overlapping(overlaps),
        )
    return out
