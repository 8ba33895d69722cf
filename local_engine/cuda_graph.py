"""Captured decode steps: one CUDA graph per batch size, so that a step takes the host one call instead of hundreds.

Knows sizes, static buffers and capture; the caller defines what a step computes. Needs no CUDA until the first capture.
"""

import gc
from bisect import bisect_left
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

MAX_ROWS = 256
WARM_UPS = 2


def bucket_sizes(max_rows: int) -> tuple[int, ...]:
    """Batch sizes to capture, ascending, the last being max_rows; from 32 rows up, padding adds less than an eighth."""
    sizes = [1, 2, 4, *range(8, 32, 4), *range(32, 64, 4), *range(64, 128, 8), *range(128, MAX_ROWS + 1, 16)]
    return (*(size for size in sizes if size < max_rows), max_rows)


def bucket_for(rows: int, sizes: Sequence[int]) -> int | None:
    """The smallest captured size that holds `rows`, or None if the step must run without a graph."""
    index = bisect_left(sizes, rows)
    return sizes[index] if rows and index < len(sizes) else None


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """One sequence's next step: its last token, its length including that token, and its blocks."""

    token_id: int
    length: int
    block_ids: list[int]


@dataclass(frozen=True, slots=True)
class DecodeInputs:
    """A decode step's device tensors, int32: [rows] each, block_table [rows, max_blocks].

    A padded row has length 0 and slot -1.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor


class DecodeBuffers:
    """The memory that captured steps read: it never moves, and one copy fills it.

    Everything is in one int32 tensor, [4 * max_rows + max_rows * max_blocks], mirrored on the host. A row's block table
    on the device may be older than its mirror until a batch uses that row again.
    """

    def __init__(self, max_rows: int, max_blocks: int, block_size: int, device: torch.device) -> None:
        self.max_rows = max_rows
        self.max_blocks = max_blocks
        self.block_size = block_size
        self.device = device
        size = (4 + max_blocks) * max_rows
        self._host = torch.zeros(size, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._device = torch.zeros(size, dtype=torch.int32, device=device)
        self._arrays = _host_rows(_cut(self._host, max_rows, max_blocks, max_rows))
        self._written: list[list[int]] = [[] for _ in range(max_rows)]
        self._copied = torch.cuda.Event() if device.type == "cuda" else None
        self.pad(0)
        self.upload(max_rows)

    def view(self, rows: int) -> DecodeInputs:
        """The first `rows` rows on the device."""
        return _cut(self._device, self.max_rows, self.max_blocks, rows)

    def fill(self, rows: Sequence[DecodeRow], bucket: int) -> None:
        """Writes the batch, padded to `bucket` rows, and sends it to the device without waiting."""
        if self._copied is not None:
            self._copied.synchronize()
        host, count = self._arrays, len(rows)
        host.token_ids[:count] = [row.token_id for row in rows]
        host.positions[:count] = [row.length - 1 for row in rows]
        host.seq_lens[:count] = [row.length for row in rows]
        host.slots[:count] = [slot(row.length - 1, row.block_ids, self.block_size) for row in rows]
        for index, row in enumerate(rows):
            # Blocks change every block_size steps; comparing lists takes a tenth of the time of writing them.
            if self._written[index] != row.block_ids:
                host.block_table[index, : len(row.block_ids)] = row.block_ids
                self._written[index] = list(row.block_ids)
        self.pad(len(rows), bucket)
        self.upload(bucket)

    def pad(self, start: int, end: int | None = None) -> None:
        """Turn the host's rows from `start` to `end` (to the last if None) into padding that computes nothing.

        Their block tables stay: a row of length 0 reads none.
        """
        host = self._arrays
        host.token_ids[start:end] = 0
        host.positions[start:end] = 0
        host.seq_lens[start:end] = 0
        host.slots[start:end] = -1

    def upload(self, rows: int) -> None:
        """Copy from the host in stream order: the columns, and the block tables of the first `rows` rows only.

        With a window of 131,072 tokens and 256 rows the tables take 8 MB, of which a step of one row needs 32 kB.
        """
        end = 4 * self.max_rows + rows * self.max_blocks
        self._device[:end].copy_(self._host[:end], non_blocking=True)
        if self._copied is not None:
            self._copied.record()

    def save(self) -> torch.Tensor:
        """A copy of what the device holds, for `restore`."""
        return self._device.clone()

    def restore(self, saved: torch.Tensor) -> None:
        """Puts back what `save` returned."""
        self._device.copy_(saved)

    def clear(self) -> None:
        """Turns every row on the device into padding, without changing the host's mirror."""
        self._device.zero_()
        self.view(self.max_rows).slots.fill_(-1)


@dataclass(frozen=True, slots=True)
class _HostRows:
    token_ids: np.ndarray
    positions: np.ndarray
    slots: np.ndarray
    seq_lens: np.ndarray
    block_table: np.ndarray


def _host_rows(cut: DecodeInputs) -> _HostRows:
    return _HostRows(
        cut.token_ids.numpy(),
        cut.positions.numpy(),
        cut.slots.numpy(),
        cut.seq_lens.numpy(),
        cut.block_table.numpy(),
    )


def slot(position: int, block_ids: Sequence[int], block_size: int) -> int:
    """Index of a position in the flattened cache."""
    return block_ids[position // block_size] * block_size + position % block_size


def _cut(flat: torch.Tensor, max_rows: int, max_blocks: int, rows: int) -> DecodeInputs:
    columns = flat[: 4 * max_rows].view(4, max_rows)[:, :rows]
    table = flat[4 * max_rows :].view(max_rows, max_blocks)[:rows]
    return DecodeInputs(columns[0], columns[1], columns[2], columns[3], table)


@cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """The single stream for warm-up and capture: on each stream the matrix library keeps 32 MB permanently."""
    return torch.cuda.Stream(device)


@contextmanager
def uncollected() -> Generator[None]:
    """Disables Python's garbage collector: freeing an older graph or pinned memory would invalidate a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True, slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    output: torch.Tensor


class DecodeGraphs:
    """Replays `step` for a bucket, capturing it on first use (about a second, including kernel compilation).

    `step` gets the bucket's inputs and returns a tensor that each replay overwrites. It must launch the same kernels
    whatever the inputs, touch no host memory, and do nothing for padded rows.
    """

    def __init__(self, step: Callable[[DecodeInputs], torch.Tensor], buffers: DecodeBuffers) -> None:
        self._step = step
        self._buffers = buffers
        self._captured: dict[int, _Captured] = {}
        self._pool = None

    @property
    def captured(self) -> tuple[int, ...]:
        """The buckets captured so far."""
        return tuple(sorted(self._captured))

    def run(self, bucket: int) -> torch.Tensor:
        """Compute the rows in the buffers; the result is valid until the next run of any bucket.

        On a CPU, which has no graphs, the step is computed directly.
        """
        if self._buffers.device.type != "cuda":
            return self._step(self._buffers.view(bucket))
        captured = self._captured.get(bucket)
        if captured is None:
            captured = self._captured[bucket] = self._capture(bucket)
        captured.graph.replay()
        return captured.output

    def _capture(self, bucket: int) -> _Captured:
        """Warms up and captures with padded rows, so that a step that advances its inputs changes nothing."""
        saved = self._buffers.save()
        self._buffers.clear()
        inputs = self._buffers.view(bucket)
        stream = capture_stream(self._buffers.device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                self._step(inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Graphs share one pool: only one runs at a time, so the largest one's scratch memory serves all.
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        with uncollected(), torch.cuda.graph(graph, pool=self._pool, stream=stream):
            output = self._step(inputs)
        self._buffers.restore(saved)
        return _Captured(graph, output)
