"""Rotary embedding, Qwen3's per-head norms and the write into the paged KV cache, in one launch per layer."""
# pyright: basic, reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false
# The kernel body is written in Triton's language, whose types are not Python's.

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.fp8 import E4M3_MAX
from local_engine.kernels.launch import begin, ceil_divide, next_power_of_2, overlapping

HEADS_PER_PROGRAM = 8


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """RMSNorm over each query and key head before rotation (Qwen3): weights [head_dim]."""

    q_weight: Tensor
    k_weight: Tensor
    eps: float


@triton.jit
def _rope_store_kernel(
    qkv_ptr,
    cos_ptr,
    sin_ptr,
    positions_ptr,
    slots_ptr,
    k_cache_ptr,
    v_cache_ptr,
    q_norm_ptr,
    k_norm_ptr,
    eps,
    qkv_stride,
    block_size,
    k_block_stride,
    k_slot_stride,
    v_block_stride,
    v_slot_stride,
    Q_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    HEADS: tl.constexpr,
    HAS_NORM: tl.constexpr,
    IS_FP8: tl.constexpr,
    LARGEST: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    begin(OVERLAPS)
    HALF: tl.constexpr = HEAD_DIM // 2
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    lane = tl.arange(0, HALF_BLOCK)
    inside_lane = lane < HALF
    inside = (head < Q_HEADS + 2 * KV_HEADS)[:, None] & inside_lane[None, :]
    is_key = (head >= Q_HEADS) & (head < Q_HEADS + KV_HEADS)
    is_value = head >= Q_HEADS + KV_HEADS

    source = qkv_ptr + token * qkv_stride + head[:, None] * HEAD_DIM + lane[None, :]
    first = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + HALF, mask=inside, other=0.0).to(tl.float32)

    position = tl.load(positions_ptr + token).to(tl.int64)
    cos = tl.load(cos_ptr + position * HALF + lane, mask=inside_lane, other=1.0).to(tl.float32)[None, :]
    sin = tl.load(sin_ptr + position * HALF + lane, mask=inside_lane, other=0.0).to(tl.float32)[None, :]
    normed_first, normed_second = first, second
    if HAS_NORM:
        mean_square = (tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)) / HEAD_DIM
        inverse = tl.rsqrt(mean_square + eps)[:, None]
        q_first = tl.load(q_norm_ptr + lane, mask=inside_lane, other=0.0).to(tl.float32)[None, :]
        q_second = tl.load(q_norm_ptr + HALF + lane, mask=inside_lane, other=0.0).to(tl.float32)[None, :]
        k_first = tl.load(k_norm_ptr + lane, mask=inside_lane, other=0.0).to(tl.float32)[None, :]
        k_second = tl.load(k_norm_ptr + HALF + lane, mask=inside_lane, other=0.0).to(tl.float32)[None, :]
        normed_first = first * inverse * tl.where(is_key[:, None], k_first, q_first)
        normed_second = second * inverse * tl.where(is_key[:, None], k_second, q_second)
    rotated_first = normed_first * cos - normed_second * sin
    rotated_second = normed_second * cos + normed_first * sin
    first = tl.where(is_value[:, None], first, rotated_first)
    second = tl.where(is_value[:, None], second, rotated_second)

    rotated = inside & (is_value == 0)[:, None]
    tl.store(source, first.to(qkv_ptr.dtype.element_ty), mask=rotated)
    tl.store(source + HALF, second.to(qkv_ptr.dtype.element_ty), mask=rotated)

    slot = tl.load(slots_ptr + token).to(tl.int64)
    if slot >= 0:  # a padded row of a captured graph has slot -1 and must not touch the cache
        block, offset = slot // block_size, slot % block_size
        if IS_FP8:
            first = tl.minimum(tl.maximum(first, -LARGEST), LARGEST)
            second = tl.minimum(tl.maximum(second, -LARGEST), LARGEST)
        k_target = k_cache_ptr + block * k_block_stride + offset * k_slot_stride
        k_target += (head - Q_HEADS)[:, None] * HEAD_DIM + lane[None, :]
        k_inside = inside & is_key[:, None]
        tl.store(k_target, first.to(k_cache_ptr.dtype.element_ty), mask=k_inside)
        tl.store(k_target + HALF, second.to(k_cache_ptr.dtype.element_ty), mask=k_inside)
        v_target = v_cache_ptr + block * v_block_stride + offset * v_slot_stride
        v_target += (head - Q_HEADS - KV_HEADS)[:, None] * HEAD_DIM + lane[None, :]
        v_inside = inside & is_value[:, None]
        tl.store(v_target, first.to(v_cache_ptr.dtype.element_ty), mask=v_inside)
        tl.store(v_target + HALF, second.to(v_cache_ptr.dtype.element_ty), mask=v_inside)


def rope_store(
    qkv: Tensor,
    cos_sin: tuple[Tensor, Tensor],
    positions: Tensor,
    slots: Tensor,
    caches: tuple[Tensor, Tensor],
    *,
    q_heads: int,
    norms: HeadNorms | None = None,
    overlaps: bool = False,
) -> None:
    """Norm and rotate the q and k heads of `qkv` in place, and write k and v into the caches.

    qkv [tokens, (q_heads + 2 * kv_heads) * dim], columns contiguous; cos and sin [positions, dim / 2], contiguous;
    slots are block * block_size + offset, -1 to write nothing; caches [blocks, block_size, kv_heads, dim], contiguous
    in the last two dimensions, in qkv's type or e4m3 (then saturated).
    """
    k_cache, v_cache = caches
    _, block_size, kv_heads, dim = k_cache.shape
    total_heads = q_heads + 2 * kv_heads
    _rope_store_kernel[(qkv.shape[0], ceil_divide(total_heads, HEADS_PER_PROGRAM))](
        qkv,
        *cos_sin,
        positions,
        slots,
        k_cache,
        v_cache,
        qkv if norms is None else norms.q_weight,
        qkv if norms is None else norms.k_weight,
        0.0 if norms is None else norms.eps,
        qkv.stride(0),
        block_size,
        k_cache.stride(0),
        k_cache.stride(1),
        v_cache.stride(0),
        v_cache.stride(1),
        Q_HEADS=q_heads,
        KV_HEADS=kv_heads,
        HEAD_DIM=dim,
        HALF_BLOCK=next_power_of_2(dim // 2),
        HEADS=HEADS_PER_PROGRAM,
        HAS_NORM=norms is not None,
        IS_FP8=k_cache.element_size() == 1,
        LARGEST=E4M3_MAX,
        OVERLAPS=overlaps,
        num_warps=4,
        **overlapping(overlaps),
    )
