"""Runs one scheduled batch on the device: builds its tensors, calls the model, returns the logits to draw from."""

from dataclasses import dataclass

import numpy as np
import torch

from local_engine.attention.protocol import AttentionBatch
from local_engine.model import DecoderModel, KvCache
from local_engine.sampling.prompt_scores import score_prompts
from local_engine.scheduler import Batch, Row
from local_engine.transfer import send

CACHE_LINE_BYTES = 64


@dataclass(frozen=True, slots=True)
class TokenPatch:
    """Tokens not yet known to the host: `ids[sources[i]]` replaces the batch's token at `targets[i]`."""

    ids: torch.Tensor
    targets: list[int]
    sources: list[int]

    def apply(self, token_ids: torch.Tensor) -> None:
        """Inserts the tokens, on the device."""
        count = len(self.targets)
        if self.targets == self.sources == list(range(count)):
            token_ids[:count].copy_(self.ids[:count])
            return
        targets, sources = (send(index, torch.int64, token_ids.device) for index in (self.targets, self.sources))
        token_ids.index_copy_(0, targets, self.ids.index_select(0, sources).to(token_ids.dtype))


class ModelRunner:
    """Owns the KV cache tensors of one model."""

    def __init__(
        self,
        model: DecoderModel,
        *,
        blocks: int,
        block_size: int,
        kv_dtype: torch.dtype,
        is_deterministic: bool = False,
    ) -> None:
        self._model = model
        self._is_deterministic = is_deterministic
        self._block_size = block_size
        config = model.config
        shape = (blocks, block_size, config.kv_heads, config.head_size)
        self.caches = [
            KvCache(lazy_zeros(shape, kv_dtype, model.device), lazy_zeros(shape, kv_dtype, model.device))
            for _ in range(config.layers)
        ]

    @property
    def device(self) -> torch.device:
        """The device of the logits."""
        return self._model.device

    @torch.inference_mode()
    def run(self, batch: Batch, patch: TokenPatch | None = None) -> torch.Tensor:
        """Compute every row; returns float32 logits, in row order, of the last drafts + 1 positions of rows that need
        them.

        Requests for prompt log-probabilities receive those of the rows' positions.
        """
        if not self._is_deterministic:
            return self._run_rows(batch.rows, patch)
        assert patch is None, "a device that runs ahead does not compute row by row"
        # A product's rounding depends on its number of rows. Computed one by one, a request's rows depend only on
        # itself.
        return torch.cat([self._run_rows((row,)) for row in batch.rows])

    def _run_rows(self, rows: tuple[Row, ...], patch: TokenPatch | None = None) -> torch.Tensor:
        token_ids = send(token_ids_of(rows), torch.int64, self.device)
        if patch is not None:
            patch.apply(token_ids)
        hidden = self._model.forward(
            token_ids,
            self._send(positions_of(rows)),
            self.caches,
            self.attention_batch(rows),
        )
        score_prompts(rows, hidden, self._model.logits)
        wanted = logit_positions(rows)
        if not wanted:
            return torch.empty(0, self._model.config.vocabulary_size, device=self.device)
        return self._model.logits(hidden[send(wanted, torch.int64, self.device)])

    def attention_batch(self, rows: tuple[Row, ...]) -> AttentionBatch:
        """Lays out the rows one after another."""
        query_lengths = [row.count for row in rows]
        sequence_lengths = [row.start + row.count for row in rows]
        table = block_table_of(rows)
        slots = np.concatenate([self._slots(row, table[index]) for index, row in enumerate(rows)])
        cu_seqlens = np.concatenate(([0], np.cumsum(query_lengths))).astype(np.int32)
        return AttentionBatch(
            cu_seqlens_q=self._send(cu_seqlens),
            seq_lens=send(sequence_lengths, torch.int32, self.device),
            block_table=self._send(table),
            slot_mapping=self._send(slots),
            query_lengths=query_lengths,
            sequence_lengths=sequence_lengths,
            block_ids=[row.request.block_ids for row in rows],
        )

    def _send(self, values: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(values)
        return tensor if self.device.type == "cpu" else tensor.pin_memory().to(self.device, non_blocking=True)

    def _slots(self, row: Row, blocks: np.ndarray) -> np.ndarray:
        positions = np.arange(row.start, row.start + row.count)
        return blocks[positions // self._block_size].astype(np.int64) * self._block_size + positions % self._block_size


def logit_positions(rows: tuple[Row, ...]) -> list[int]:
    """Indices among the batch's tokens where something is drawn: after each draft and after the last known token."""
    wanted: list[int] = []
    end = 0
    for row in rows:
        end += row.count
        if row.needs_logits:
            wanted.extend(range(end - row.drafts - 1, end))
    return wanted


def token_ids_of(rows: tuple[Row, ...]) -> list[int]:
    """The tokens that the rows compute, row after row; 0 for tokens in flight."""
    return [token for row in rows for token in _row_tokens(row)]


def positions_of(rows: tuple[Row, ...]) -> np.ndarray:
    """Positions of the rows' tokens within their sequences."""
    return np.concatenate([np.arange(row.start, row.start + row.count) for row in rows])


def block_table_of(rows: tuple[Row, ...]) -> np.ndarray:
    """int32 [rows, most blocks], padded with 0."""
    block_ids = [row.request.block_ids for row in rows]
    table = np.zeros((len(rows), max(len(ids) for ids in block_ids)), dtype=np.int32)
    for index, ids in enumerate(block_ids):
        table[index, : len(ids)] = ids
    return table


def _row_tokens(row: Row) -> list[int]:
    request = row.request
    end = row.start + row.count
    if end <= len(request.token_ids):
        return request.token_ids[row.start : end]
    known = request.token_ids + request.draft_token_ids
    return (known + [0] * request.in_flight_tokens)[row.start : end]


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros whose memory the system allocates on first write, so that an idle engine stays small.

    Aligned to a cache line, for reads of vectors of that width.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = int(np.prod(shape)) * dtype.itemsize
    zeros = np.zeros(size + CACHE_LINE_BYTES, dtype=np.uint8)
    start = -zeros.ctypes.data % CACHE_LINE_BYTES
    return torch.from_numpy(zeros[start : start + size]).view(dtype).view(shape)
