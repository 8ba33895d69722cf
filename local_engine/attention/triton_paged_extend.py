"""Causal attention of several new tokens per sequence over their paged cache: chunked prefill, cached prefixes, and
verification of drafts.

The new keys and values must already be in the cache. Rows of a tile are tokens × the query heads of one KV head (GQA
packing); tiles of all sequences form one grid, and each tile finds its sequence by bisection. Knows nothing of models.
"""
# pyright: basic, reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false
# The kernel body is written in Triton's language, whose types are not Python's.

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.attention.triton_tiles import LOG2_E, attend, group_rows, load_tile
from local_engine.kernels.launch import dot_type, is_hopper_or_later, next_power_of_2

MAX_TILE_ROWS = 128
# Keys of a step.
BLOCK_N = 64
# Of the largest tile where four warps multiply together: two programs share a multiprocessor, and one multiplies while
# the other exponentiates. The best of 31 shapes on an H200 (docs/decisions/kernels-on-an-h200.md). On older devices,
# and with wider heads, four warps lack the registers.
HOPPERS_BLOCK_N, HOPPERS_MAX_DIM = 32, 128


# As in decode: nothing that varies from step to step may cause another compilation.
@triton.jit(
    do_not_specialize=["sequences", "table_stride"],
    do_not_specialize_on_alignment=["block_table_ptr", "seq_lens_ptr", "cu_seqlens_q_ptr"],
)
def _extend_kernel(
    q_ptr,
    k_cache_ptr,
    v_cache_ptr,
    out_ptr,
    block_table_ptr,
    seq_lens_ptr,
    cu_seqlens_q_ptr,
    sequences,
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
    HEAD_DIM: tl.constexpr,
    DIM_BLOCK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    BLOCK_Q: tl.constexpr = BLOCK_M // GROUP
    kv_head = tl.program_id(0)
    # Late tiles see the most keys: starting them first keeps the last wave short.
    tile = tl.num_programs(1) - 1 - tl.program_id(1)

    # The sequence is the last one whose first tile, cu_seqlens_q[i] // BLOCK_Q + i, is not after this tile.
    low = 0
    high = sequences
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(cu_seqlens_q_ptr + middle) // BLOCK_Q + middle <= tile:
            low = middle
        else:
            high = middle
    q_start = tl.load(cu_seqlens_q_ptr + low)
    q_length = tl.load(cu_seqlens_q_ptr + low + 1) - q_start
    first_token = (tile - q_start // BLOCK_Q - low) * BLOCK_Q
    if first_token >= q_length:
        return
    length = tl.load(seq_lens_ptr + low)
    cached = length - q_length

    row = tl.arange(0, BLOCK_M)
    lane = tl.arange(0, DIM_BLOCK)
    token = first_token + row // GROUP
    head = kv_head * GROUP + row % GROUP
    inside = ((row < BLOCK_Q * GROUP) & (token < q_length))[:, None] & (lane < HEAD_DIM)[None, :]
    at = (q_start + token).to(tl.int64)
    q = tl.load(q_ptr + at[:, None] * q_stride + head[:, None] * HEAD_DIM + lane[None, :], mask=inside, other=0.0)
    q = q.to(COMPUTE)

    position = cached + token
    end = tl.minimum(cached + first_token + BLOCK_Q, length)
    begin = 0
    # Keys before this tile's first query are visible to all its rows, so those iterations need no mask.
    unmasked_end = (cached + first_token + 1) // BLOCK_N * BLOCK_N
    if WINDOW > 0:
        begin = tl.maximum(cached + first_token - WINDOW + 1, 0) // BLOCK_N * BLOCK_N
        unmasked_end = begin
    peak = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, DIM_BLOCK], tl.float32)
    table = block_table_ptr + low.to(tl.int64) * table_stride
    for first in range(begin, unmasked_end, BLOCK_N):
        key = first + tl.arange(0, BLOCK_N)
        present = key < end
        k = load_tile(
            k_cache_ptr, table, key, present, kv_head, k_block_stride, k_slot_stride, BLOCK_SIZE, HEAD_DIM, DIM_BLOCK
        ).to(COMPUTE)
        v = load_tile(
            v_cache_ptr, table, key, present, kv_head, v_block_stride, v_slot_stride, BLOCK_SIZE, HEAD_DIM, DIM_BLOCK
        ).to(COMPUTE)
        peak, total, acc = attend(q, k, v, present[None, :], qk_scale, peak, total, acc, False)
    for first in range(unmasked_end, end, BLOCK_N):
        key = first + tl.arange(0, BLOCK_N)
        present = key < end
        k = load_tile(
            k_cache_ptr, table, key, present, kv_head, k_block_stride, k_slot_stride, BLOCK_SIZE, HEAD_DIM, DIM_BLOCK
        ).to(COMPUTE)
        v = load_tile(
            v_cache_ptr, table, key, present, kv_head, v_block_stride, v_slot_stride, BLOCK_SIZE, HEAD_DIM, DIM_BLOCK
        ).to(COMPUTE)
        seen = (key[None, :] <= position[:, None]) & present[None, :]
        if WINDOW > 0:
            seen = seen & (key[None, :] > position[:, None] - WINDOW)
        peak, total, acc = attend(q, k, v, seen, qk_scale, peak, total, acc, True)

    out = acc / tl.where(total > 0, total, 1.0)[:, None]
    heads = tl.num_programs(0) * GROUP
    out_at = out_ptr + (at[:, None] * heads + head[:, None]) * HEAD_DIM + lane[None, :]
    tl.store(out_at, out.to(out_ptr.dtype.element_ty), mask=inside)


def paged_extend(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    cu_seqlens_q: Tensor,
    *,
    max_query_tokens: int,
    scale: float,
    window: int = 0,
    out: Tensor | None = None,
) -> Tensor:
    """Attention output [total_tokens, heads, dim] of q [total_tokens, heads, dim] (heads and dim contiguous).

    cu_seqlens_q int32 [sequences + 1] delimits each sequence's new tokens, which are the last of its seq_lens
    [sequences] int32 cached tokens; max_query_tokens is the largest number of new tokens and only affects the tile's
    height. Rows of q past cu_seqlens_q[-1] are left unwritten.
    """
    tokens, heads, dim = q.shape
    _, block_size, kv_heads, _ = k_cache.shape
    group = heads // kv_heads
    sequences = seq_lens.shape[0]
    tile_rows = choose_tile_rows(group, max_query_tokens, q.element_size())
    is_largest = tile_rows >= MAX_TILE_ROWS
    is_large_on_hopper = is_largest and dim <= HOPPERS_MAX_DIM and is_hopper_or_later(q.device)
    if out is None:
        out = torch.empty((tokens, heads, dim), dtype=q.dtype, device=q.device)
    # Each sequence wastes less than one tile, so this many tiles always suffice.
    tiles = tokens // (tile_rows // group) + sequences
    _extend_kernel[(kv_heads, tiles)](
        q,
        k_cache,
        v_cache,
        out,
        block_table,
        seq_lens,
        cu_seqlens_q,
        sequences,
        scale * LOG2_E,
        q.stride(0),
        block_table.stride(0),
        k_cache.stride(0),
        k_cache.stride(1),
        v_cache.stride(0),
        v_cache.stride(1),
        BLOCK_SIZE=block_size,
        WINDOW=window,
        GROUP=group,
        HEAD_DIM=dim,
        DIM_BLOCK=next_power_of_2(dim),
        BLOCK_M=tile_rows,
        BLOCK_N=HOPPERS_BLOCK_N if is_large_on_hopper else BLOCK_N,
        COMPUTE=dot_type(q.dtype),
        num_warps=8 if is_largest and not is_large_on_hopper else 4,
        num_stages=3 if is_large_on_hopper else 2,
    )
    return out


def choose_tile_rows(group: int, max_query_tokens: int, element_size: int = 2) -> int:
    """Rows of a tile: just enough for the most new tokens × heads, so that verification does not pay for prefill's
    tile.

    float32 has no tensor cores of its precision: tiles larger than the smallest would spill accumulators to memory.
    """
    if element_size > 2:
        return group_rows(group)
    return min(max(MAX_TILE_ROWS, group_rows(group)), max(group_rows(group), next_power_of_2(group * max_query_tokens)))
