"""Paged attention on a GPU behind the engine's protocol: split-KV for decode rows, the varlen kernel for all others."""

import torch

from local_engine.attention.protocol import AttentionBatch
from local_engine.attention.triton_paged_decode import paged_decode
from local_engine.attention.triton_paged_extend import paged_extend


class TritonAttention:
    """AttentionBackend over caches of float16, bfloat16, float32 or e4m3.

    `window` is the sliding window in tokens, 0 for none. `splits` fixes the number of splits per sequence in decode,
    which makes a row's bits independent of its batch; by default it depends on the batch, to fill the device. `scale`
    multiplies scores; 0 means 1/sqrt(head_size).
    """

    def __init__(self, *, window: int = 0, splits: int | None = None, scale: float = 0.0) -> None:
        self._window = window
        self._splits = splits
        self._scale = scale

    def store(
        self, k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, batch: AttentionBatch
    ) -> None:
        """Scatters k and v with torch; `FusedDecoder` writes them in its rotary kernel instead and never calls this."""
        _scatter(k, k_cache, batch.slot_mapping)
        _scatter(v, v_cache, batch.slot_mapping)

    def attend(
        self,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        batch: AttentionBatch,
        *,
        has_window: bool = True,
        overlaps: bool = False,
    ) -> torch.Tensor:
        """Returns [tokens, heads, head_size]; q's rows may be strided. Kernels of decode rows may overlap with
        others."""
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        decodes = leading_ones(batch.query_lengths)
        scale, window = self._scale or q.shape[-1] ** -0.5, self._window if has_window else 0
        if decodes:
            paged_decode(
                q[:decodes],
                k_cache,
                v_cache,
                batch.block_table[:decodes],
                batch.seq_lens[:decodes],
                scale=scale,
                window=window,
                splits=self._splits,
                out=out[:decodes],
                overlaps=overlaps,
            )
        if decodes < len(batch.query_lengths):
            paged_extend(
                q[decodes:],
                k_cache,
                v_cache,
                batch.block_table[decodes:],
                batch.seq_lens[decodes:],
                batch.cu_seqlens_q[decodes:] - decodes,
                max_query_tokens=max(batch.query_lengths[decodes:]),
                scale=scale,
                window=window,
                out=out[decodes:],
            )
        return out


def leading_ones(query_lengths: list[int]) -> int:
    """How many sequences at the front compute a single token: the scheduler puts decodes before prompts."""
    for index, length in enumerate(query_lengths):
        if length != 1:
            return index
    return len(query_lengths)


def _scatter(values: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    if cache.dtype == torch.float8_e4m3fn:
        largest = torch.finfo(cache.dtype).max
        values = values.float().clamp(-largest, largest)
    # index_copy_ does not support e4m3, so bytes are copied.
    rows = values.to(cache.dtype)
    if cache.element_size() == 1:
        rows, cache = rows.view(torch.uint8), cache.view(torch.uint8)
    cache.flatten(0, 1).index_copy_(0, slots, rows)
