"""Random paged caches and batches for the kernels' tests."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Paged:
    """A pair of caches, the block table into them, and the sequences' lengths."""

    k_cache: Tensor
    v_cache: Tensor
    block_table: Tensor
    seq_lens: Tensor


def make_paged(
    lengths: list[int],
    *,
    kv_heads: int = 2,
    dim: int = 64,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
) -> Paged:
    """Blocks are assigned in random order, and unused ones contain NaN, so that reading past an end is noticed."""
    columns = max(1, -(-max(lengths) // block_size)) + 1
    used = [-(-length // block_size) for length in lengths]
    total = sum(used) + 3
    order = torch.randperm(total - 1) + 1
    table = torch.zeros(len(lengths), columns, dtype=torch.int32)
    caches = [torch.full((total, block_size, kv_heads, dim), float("nan")) for _ in range(2)]
    taken = 0
    for row, (length, count) in enumerate(zip(lengths, used, strict=True)):
        blocks = order[taken : taken + count]
        taken += count
        table[row, :count] = blocks.int()
        slots = (blocks[:, None] * block_size + torch.arange(block_size)).flatten()[:length]
        for cache in caches:
            cache.view(-1, kv_heads, dim)[slots] = torch.randn(length, kv_heads, dim)
    k_cache, v_cache = (cache.to(dtype) for cache in caches)
    return Paged(k_cache, v_cache, table, torch.tensor(lengths, dtype=torch.int32))


def relative_error(got: Tensor, wanted: Tensor) -> float:
    """‖got − wanted‖ / ‖wanted‖; NaN compares false with every bound, and so fails."""
    return float((got.float() - wanted.float()).norm() / wanted.float().norm())
