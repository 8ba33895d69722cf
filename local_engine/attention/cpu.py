"""Paged attention on CPU: torch's fused attention per sequence, without materialising a mask.

A chunk after a cached prefix attends to the prefix unmasked and to itself causally; the two parts are merged by their
log-sum-exp. Each sequence is computed separately, so its result does not depend on its neighbours.
"""

import torch
from torch.nn import functional as F

from local_engine.attention.protocol import AttentionBatch


class CpuAttention:
    """AttentionBackend for the CPU, any floating type; `window` is the sliding window in tokens, 0 for none.

    `scale` multiplies scores; 0 means 1/sqrt(head_size).
    """

    def __init__(self, *, window: int = 0, scale: float = 0.0) -> None:
        self._window = window
        self._scale = scale or None

    def store(
        self, k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, batch: AttentionBatch
    ) -> None:
        """Scatter new keys and values into their slots."""
        k_cache.flatten(0, 1).index_copy_(0, batch.slot_mapping, k.to(k_cache.dtype))
        v_cache.flatten(0, 1).index_copy_(0, batch.slot_mapping, v.to(v_cache.dtype))

    def attend(
        self,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        batch: AttentionBatch,
        *,
        has_window: bool = True,
    ) -> torch.Tensor:
        """Attend sequence by sequence."""
        out = torch.empty_like(q)
        window = self._window if has_window else 0
        start = 0
        for count, length, blocks in zip(batch.query_lengths, batch.sequence_lengths, batch.block_ids, strict=True):
            keys = gather(k_cache, blocks, length)
            values = gather(v_cache, blocks, length)
            rows = q[start : start + count]
            if window and length > window:
                out[start : start + count] = _attend_sliding(rows, keys, values, window, self._scale)
            else:
                out[start : start + count] = _attend_one(rows, keys, values, self._scale)
            start += count
        return out


def gather(cache: torch.Tensor, blocks: list[int], length: int) -> torch.Tensor:
    """A sequence's cached rows as [kv_heads, length, head_size]; a view if its blocks are consecutive."""
    first, count = blocks[0], -(-length // cache.shape[1])
    if blocks[count - 1] - first == count - 1 and blocks[:count] == list(range(first, first + count)):
        rows = cache[first : first + count]
    else:
        rows = cache.index_select(0, torch.tensor(blocks[:count]))
    return rows.flatten(0, 1)[:length].transpose(0, 1)


def _attend_one(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float | None) -> torch.Tensor:
    """q is [n, heads, head_size], for the last n of the keys' positions."""
    n, heads, size = q.shape
    kv_heads, length = keys.shape[0], keys.shape[1]
    if n == 1:
        grouped = q.view(1, kv_heads, heads // kv_heads, size)
        return F.scaled_dot_product_attention(grouped, keys[None], values[None], scale=scale).reshape(1, heads, size)
    if n == length:
        return _fused(q, keys, values, scale, is_causal=True)[0]
    context = length - n
    before, before_lse = _fused(q, keys[:, :context], values[:, :context], scale, is_causal=False)
    here, here_lse = _fused(q, keys[:, context:], values[:, context:], scale, is_causal=True)
    share = torch.sigmoid(before_lse - here_lse)[..., None]
    return here + (before - here) * share


def _attend_sliding(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, window: int, scale: float | None
) -> torch.Tensor:
    """The same for sequences longer than the window: each query sees only its last `window` keys."""
    n, length = len(q), keys.shape[1]
    first = max(0, length - n - window + 1)
    queries, seen = torch.arange(length - n, length)[:, None], torch.arange(first, length)[None]
    mask = (seen <= queries) & (seen > queries - window)
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        keys[None, :, first:],
        values[None, :, first:],
        attn_mask=mask,
        scale=scale,
        enable_gqa=True,
    )
    return out[0].transpose(0, 1)


def _fused(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float | None, *, is_causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output [n, heads, head_size] and log-sum-exp [n, heads]; query heads share key heads in order."""
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q.transpose(0, 1)[None], keys[None], values[None], is_causal=is_causal, scale=scale
    )
    return out[0].transpose(0, 1), lse[0].transpose(0, 1)
