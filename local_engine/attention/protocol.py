"""Attention over a paged KV cache as the model needs it, so that CPU and Triton backends are interchangeable.

K and V caches are separate per layer, [blocks, block_size, kv_heads, head_size]. Queries of all sequences are
concatenated, [tokens, heads, head_size], delimited by `cu_seqlens_q`.
"""

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """One step's layout, on the device and, for backends that loop on the host, as plain lists.

    `seq_lens` counts a sequence's tokens including those computed now; `slot_mapping` is block * block_size + offset
    for every token computed now; `block_table` is padded with 0.
    """

    cu_seqlens_q: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    query_lengths: list[int]
    sequence_lengths: list[int]
    block_ids: list[list[int]]


class AttentionBackend(Protocol):
    """Stores the new keys and values, then attends causally over each sequence's own blocks."""

    def store(
        self, k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, batch: AttentionBatch
    ) -> None:
        """Write k and v, [tokens, kv_heads, head_size], into their slots."""
        ...

    def attend(
        self,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        batch: AttentionBatch,
        *,
        has_window: bool = True,
    ) -> torch.Tensor:
        """Returns [tokens, heads, head_size]; query i of a sequence sees keys up to itself, limited to the backend's
        sliding window if the layer `has_window`."""
        ...
