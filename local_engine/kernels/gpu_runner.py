"""Runs scheduled batches on a GPU: a captured graph for pure decode steps, plain launches for all others."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from triton.errors import TritonError

from local_engine.attention.protocol import AttentionBatch
from local_engine.cuda_graph import DecodeBuffers, DecodeGraphs, DecodeInputs, DecodeRow, bucket_for, bucket_sizes
from local_engine.kernels.fused_decoder import FusedDecoder
from local_engine.kernels.launch import is_hopper_or_later
from local_engine.model_runner import ModelRunner, TokenPatch
from local_engine.scheduler import Batch, Row

log = logging.getLogger(__name__)

# Length of the answer with which variants of a step are compared.
TRIED_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class OneRow:
    """A variant of a step of one row; only launches of the fused one can overlap."""

    fuses: bool
    overlaps: bool


SEPARATE, FUSED, OVERLAPPING = OneRow(False, False), OneRow(True, False), OneRow(True, True)
WAYS = (SEPARATE, FUSED, OVERLAPPING)


@dataclass(frozen=True, slots=True)
class Tried:
    """How long a step took, and what it computed."""

    seconds: float
    logits: torch.Tensor


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
        is_deterministic: bool = False,
    ) -> None:
        super().__init__(
            model, blocks=blocks, block_size=block_size, kv_dtype=kv_dtype, is_deterministic=is_deterministic
        )
        self._decoder = model
        self._window = context_window
        self._sizes = bucket_sizes(max_rows)
        max_blocks = -(-context_window // block_size)
        self._buffers = DecodeBuffers(max_rows, max_blocks, block_size, model.device)
        # Shared by all graphs: separate ones would take gigabytes.
        self._logits = torch.empty(max_rows, model.config.vocabulary_size, device=model.device)
        self._graphs = DecodeGraphs(self._decode, self._buffers)

    @property
    def model(self) -> FusedDecoder:
        """The model whose steps are captured."""
        return self._decoder

    @torch.inference_mode()
    def run(self, batch: Batch, patch: TokenPatch | None = None) -> torch.Tensor:
        """Logits as in ModelRunner.run; those of a captured step are overwritten by the next step.

        In deterministic mode rows are computed one by one, as there.
        """
        if self._is_deterministic and len(batch.rows) > 1:
            assert patch is None, "a device that runs ahead does not compute row by row"
            return torch.cat([self.run(Batch((row,))).clone() for row in batch.rows])
        bucket = bucket_for(len(batch.rows), self._sizes) if is_pure_decode(batch.rows) else None
        if bucket is None:
            return super().run(batch, patch)
        self._buffers.fill([_decode_row(row) for row in batch.rows], bucket)
        if patch is not None:
            patch.apply(self._buffers.view(bucket).token_ids)
        return self._graphs.run(bucket)[: len(batch.rows)]

    def capture(self, rows: Sequence[int] | None = None) -> None:
        """Captures the graphs for these batch sizes (default: all), largest first, so that no answer has to wait for
        it."""
        wanted = self._sizes if rows is None else rows
        buckets = {bucket for n in wanted if (bucket := bucket_for(n, self._sizes)) is not None}
        with torch.inference_mode():
            for bucket in sorted(buckets, reverse=True):
                self._buffers.fill([], bucket)
                self._graphs.run(bucket)

    def choose_one_row(self, ways: Sequence[OneRow]) -> None:
        """Use the fastest of these variants of a step of one row on this device; none is fastest everywhere. Variants
        that do not run here are logged; if none does, the first one's error is raised.

        Call before serving: the step is tried in the cache's first blocks.
        """
        if self.device.type != "cuda" or not self._decoder.can_fuse_one_row or len(ways) < 2:
            return
        tried: dict[OneRow, Tried] = {}
        refused: list[Exception] = []
        for way in ways:
            if way.overlaps and not (FUSED in tried and is_hopper_or_later(self.device)):
                continue
            try:
                tried[way] = self._try_one_row(way)
            except (TritonError, RuntimeError) as error:
                log.warning("a step of one row does not run here as %s: %s", way, error)
                refused.append(error)
        if not tried:
            raise refused[0]
        self.take_one_row(quickest(tried))

    def take_one_row(self, way: OneRow) -> None:
        """Uses this variant from now on; steps of one row captured before keep theirs."""
        self._decoder.fuses_one_row, self._decoder.overlaps_one_row = way.fuses, way.overlaps

    @torch.inference_mode()
    def _try_one_row(self, way: "OneRow") -> "Tried":
        self.take_one_row(way)
        graphs = DecodeGraphs(self._decode, self._buffers)
        self._buffers.fill([tried_row(self._window, self._block_size, len(self.caches[0].keys))], 1)
        return Tried(median_seconds(lambda: graphs.run(1)), graphs.run(1)[:1].clone())

    def _decode(self, inputs: DecodeInputs) -> torch.Tensor:
        hidden = self._decoder.forward(inputs.token_ids, inputs.positions, self.caches, attention_batch(inputs))
        return self._logits[: len(hidden)].copy_(self._decoder.head(hidden))


def tried_row(window: int, block_size: int, blocks: int) -> DecodeRow:
    """The answer with which variants are compared, in the cache's first blocks."""
    length = min(TRIED_TOKENS, window, blocks * block_size)
    return DecodeRow(token_id=0, length=length, block_ids=list(range(-(-length // block_size))))


def quickest(tried: Mapping[OneRow, Tried]) -> OneRow:
    """The fastest variant. Overlapping kernels must compute exactly what they compute one after another."""
    ways = [way for way in tried if not way.overlaps or torch.equal(tried[way].logits, tried[FUSED].logits)]
    if len(ways) < len(tried):
        log.warning("launches of steps of one row do not overlap: on this device that would change the results")
    return min(ways, key=lambda way: tried[way].seconds)


def median_seconds(step: Callable[[], object], tries: int = 21) -> float:
    """Median duration of a step on the current CUDA device, after a warm-up."""
    step()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(tries + 1)]
    for mark in marks[:-1]:
        mark.record()
        step()
    marks[-1].record()
    torch.cuda.synchronize()
    return sorted(before.elapsed_time(after) for before, after in pairwise(marks))[tries // 2] / 1000


def attention_batch(inputs: DecodeInputs) -> AttentionBatch:
    """One new token per row; host lists used only by loops over sequences stay empty."""
    rows = len(inputs.seq_lens)
    return AttentionBatch(
        # Decode does not read these bounds; any tensor on the device will do, without adding a launch to the graph.
        cu_seqlens_q=inputs.seq_lens,
        seq_lens=inputs.seq_lens,
        block_table=inputs.block_table,
        slot_mapping=inputs.slots,
        query_lengths=[1] * rows,
        sequence_lengths=[],
        block_ids=[],
    )


def is_pure_decode(rows: tuple[Row, ...]) -> bool:
    """Whether every row computes exactly one token and draws the next."""
    return all(row.count == 1 and row.needs_logits for row in rows)


def _decode_row(row: Row) -> DecodeRow:
    request = row.request
    known = request.token_ids[row.start] if row.start < len(request.token_ids) else 0
    return DecodeRow(token_id=known, length=row.start + 1, block_ids=request.block_ids)
