"""Runs scheduled batches on a GPU: a captured graph for steps of pure decoding, plain launches for all others."""

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from triton.errors import TritonError

from local_engine.attention.protocol import AttentionBatch
from local_engine.cuda_graph import DecodeBuffers, DecodeGraphs, DecodeInputs, DecodeRow, bucket_for, bucket_sizes
from local_engine.kernels.fused_decoder import FusedDecoder
from local_engine.model_runner import ModelRunner, TokenPatch
from local_engine.scheduler import Batch, Row

log = logging.getLogger(__name__)


class GpuRunner(ModelRunner):
    """ModelRunner over a FusedDecoder."""

    def __init__(
        self,
        model: FusedDecoder,
        *,
        blocks: int,
        block_size: int,
        kv_dtype: torch.dtype,
        context_window: int,
        max_rows: int,
    ) -> None:
        super().__init__(model, blocks=blocks, block_size=block_size, kv_dtype=kv_dtype)
        self._decoder = model
        self._sizes = bucket_sizes(max_rows)
        max_blocks = -(-context_window // block_size)
        self._buffers = DecodeBuffers(max_rows, max_blocks, block_size, model.device)
        # One for all graphs: of their own they would take gigabytes.
        self._logits = torch.empty(max_rows, model.config.vocabulary_size, device=model.device)
        self._graphs = DecodeGraphs(self._decode, self._buffers)

    @property
    def model(self) -> FusedDecoder:
        """The model whose steps are captured."""
        return self._decoder

    @torch.inference_mode()
    def run(self, batch: Batch, patch: TokenPatch | None = None) -> torch.Tensor:
        """Logits as ModelRunner.run; those of a captured step are overwritten by the next step."""
        bucket = bucket_for(len(batch.rows), self._sizes) if is_pure_decode(batch.rows) else None
        if bucket is None:
            return super().run(batch, patch)
        self._buffers.fill([_decode_row(row) for row in batch.rows], bucket)
        if patch is not None:
            patch.apply(self._buffers.view(bucket).token_ids)
        return self._graphs.run(bucket)[: len(batch.rows)]

    def capture(self, rows: Sequence[int] | None = None) -> None:
        """Capture the graphs for these batch sizes (all, if None) now, largest first, not during somebody's answer."""
        wanted = self._sizes if rows is None else rows
        buckets = {bucket for n in wanted if (bucket := bucket_for(n, self._sizes)) is not None}
        with torch.inference_mode():
            for bucket in sorted(buckets, reverse=True):
                self._buffers.fill([], bucket)
                self._graphs.run(bucket)

    def choose_one_row(self) -> None:
        """Take the quicker way through a step of one row, as this device carries it out; none is quicker everywhere."""
        if self.device.type != "cuda" or not self._decoder.can_fuse_one_row:
            return
        separate = self._one_row_seconds(fuses=False)
        try:
            fuses = self._one_row_seconds(fuses=True) < separate
        except TritonError as error:
            log.warning("one row at a time keeps its separate kernels, the fused one does not compile here: %s", error)
            fuses = False
        self._decoder.fuses_one_row = fuses

    @torch.inference_mode()
    def _one_row_seconds(self, *, fuses: bool) -> float:
        self._decoder.fuses_one_row = fuses
        self._buffers.fill([], 1)
        graphs = DecodeGraphs(self._decode, self._buffers)
        return median_seconds(lambda: graphs.run(1))

    def _decode(self, inputs: DecodeInputs) -> torch.Tensor:
        hidden = self._decoder.forward(inputs.token_ids, inputs.positions, self.caches, attention_batch(inputs))
        return self._logits[: len(hidden)].copy_(self._decoder.head(hidden))


def median_seconds(step: Callable[[], object], tries: int = 21) -> float:
    """Median duration of a step on the current CUDA device, after one that is not counted."""
    step()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(tries + 1)]
    for mark in marks[:-1]:
        mark.record()
        step()
    marks[-1].record()
    torch.cuda.synchronize()
    return sorted(before.elapsed_time(after) for before, after in pairwise(marks))[tries // 2] / 1000


def attention_batch(inputs: DecodeInputs) -> AttentionBatch:
    """One new token per row; the host's lists that only loops over sequences read stay empty."""
    rows = len(inputs.seq_lens)
    return AttentionBatch(
        # Decode reads no bounds; any tensor of the device will do, and no launch may be added to the graph for it.
        cu_seqlens_q=inputs.seq_lens,
        seq_lens=inputs.seq_lens,
        block_table=inputs.block_table,
        slot_mapping=inputs.slots,
        query_lengths=[1] * rows,
        sequence_lengths=[],
        block_ids=[],
    )


def is_pure_decode(rows: tuple[Row, ...]) -> bool:
    """Whether every row computes just one token and draws the next."""
    return all(row.count == 1 and row.needs_logits for row in rows)


def _decode_row(row: Row) -> DecodeRow:
    request = row.request
    known = request.token_ids[row.start] if row.start < len(request.token_ids) else 0
    return DecodeRow(token_id=known, length=row.start + 1, block_ids=request.block_ids)
