"""Shared by the two paged attention kernels: tile shapes, the type of products, and how many splits fill a device."""
# pyright: basic, reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false
# triton.language has no types of its own.

import torch
import triton
import triton.language as tl

from local_engine.kernels.launch import multiprocessors, next_power_of_2

# The softmax uses base 2, which the hardware supports directly.
LOG2_E = 1.4426950408889634
# Minimum number of rows for tl.dot on tensor cores.
MIN_DOT_ROWS = 16
MAX_SPLITS = 32
# The reduction of shorter splits costs more than they save.
MIN_SPLIT_TOKENS = 128
# Programs of a decode launch resident on a multiprocessor. Each has one tile of keys and values in flight and waits for
# it: two would hardly keep the memory busy.
PROGRAMS_PER_SM = 4


def group_rows(group: int) -> int:
    return max(MIN_DOT_ROWS, next_power_of_2(group))


def choose_splits(tiles: int, max_tokens: int, device: torch.device) -> int:
    """Splits per sequence such that tiles * splits fill the device once, as a power of two (few kernels to compile)."""
    wanted = PROGRAMS_PER_SM * multiprocessors(device) // max(1, tiles)
    useful = -(-max_tokens // MIN_SPLIT_TOKENS)
    return max(1, min(MAX_SPLITS, 1 << max(0, min(wanted, useful).bit_length() - 1)))


@triton.jit
def load_tile(
    cache_ptr,
    table_ptr,
    token,
    present,
    kv_head,
    block_stride,
    slot_stride,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_BLOCK: tl.constexpr,
):
    """Rows [tokens, DIM_BLOCK] of one KV head from the paged cache; absent tokens and padding lanes read as 0."""
    lane = tl.arange(0, DIM_BLOCK)
    block = tl.load(table_ptr + token // BLOCK_SIZE, mask=present, other=0).to(tl.int64)
    at = cache_ptr + block * block_stride + (token % BLOCK_SIZE) * slot_stride + kv_head * HEAD_DIM
    return tl.load(at[:, None] + lane[None, :], mask=present[:, None] & (lane < HEAD_DIM)[None, :], other=0.0)


@triton.jit
def attend(q, k, v, seen, qk_scale, peak, total, acc, MASKED: tl.constexpr):
    """One step of the online softmax, in base 2: folds a tile of keys and values into (peak, total, acc).

    q [rows, dim], k and v [tokens, dim], seen [rows or 1, tokens]; a row that has seen nothing yet has peak -inf and
    total 0.
    """
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * qk_scale
    if MASKED:
        scores = tl.where(seen, scores, float("-inf"))
    new_peak = tl.maximum(peak, tl.max(scores, axis=1))
    # A row may have seen nothing so far: subtracting an infinite peak from itself would be NaN.
    safe_peak = tl.where(new_peak == float("-inf"), 0.0, new_peak)
    weights = tl.exp2(scores - safe_peak[:, None])
    keep = tl.exp2(peak - safe_peak)
    total = total * keep + tl.sum(weights, axis=1)
    acc = acc * keep[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return new_peak, total, acc
