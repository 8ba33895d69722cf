"""Buckets, padding and the buffers behind captured decode steps; capturing itself only if there is a GPU."""

import gc

import pytest
import torch

from local_engine.cuda_graph import (
    DecodeBuffers,
    DecodeGraphs,
    DecodeInputs,
    DecodeRow,
    bucket_for,
    bucket_sizes,
    slot,
    uncollected,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize("max_rows", [1, 3, 8, 100, 256])
def test_buckets_rise_to_the_largest_batch_and_waste_little(max_rows: int) -> None:
    sizes = bucket_sizes(max_rows)
    assert list(sizes) == sorted(set(sizes))
    assert sizes[-1] == max_rows
    for rows in range(1, max_rows + 1):
        bucket = bucket_for(rows, sizes)
        assert bucket is not None
        assert bucket >= rows
        if rows >= 32:
            assert bucket - rows < rows / 8
    assert bucket_for(max_rows + 1, sizes) is None
    assert bucket_for(0, sizes) is None


def test_a_filled_batch_is_padded_with_rows_that_touch_nothing() -> None:
    buffers = DecodeBuffers(max_rows=8, max_blocks=3, block_size=16, device=CPU)
    buffers.fill([DecodeRow(11, 17, [5, 2]), DecodeRow(12, 1, [7]), DecodeRow(13, 40, [1, 3, 4])], 4)
    inputs = buffers.view(4)
    assert inputs.token_ids.tolist() == [11, 12, 13, 0]
    assert inputs.positions.tolist() == [16, 0, 39, 0]
    assert inputs.slots.tolist() == [2 * 16, 7 * 16, 4 * 16 + 7, -1]
    assert inputs.seq_lens.tolist() == [17, 1, 40, 0]
    assert inputs.block_table[0, :2].tolist() == [5, 2]
    assert inputs.block_table[2].tolist() == [1, 3, 4]
    buffers.fill([DecodeRow(9, 2, [6])], 4)
    assert inputs.slots.tolist() == [6 * 16 + 1, -1, -1, -1], "the views are the same memory, refilled"
    assert inputs.seq_lens.tolist() == [2, 0, 0, 0]


def test_a_row_whose_blocks_change_sees_the_new_ones() -> None:
    buffers = DecodeBuffers(max_rows=2, max_blocks=4, block_size=16, device=CPU)
    blocks = [5, 2]
    table = buffers.view(1).block_table
    for expected in ([5, 2], [5, 2, 8], [1, 3]):
        blocks[:] = expected
        buffers.fill([DecodeRow(1, 16 * len(blocks), blocks)], 1)
        assert table[0, : len(expected)].tolist() == expected


def test_clearing_and_restoring_leave_the_batch_as_it_was() -> None:
    buffers = DecodeBuffers(max_rows=2, max_blocks=2, block_size=16, device=CPU)
    buffers.fill([DecodeRow(11, 17, [5, 2])], 2)
    saved = buffers.save()
    buffers.clear()
    assert buffers.view(2).seq_lens.tolist() == [0, 0]
    assert buffers.view(2).slots.tolist() == [-1, -1]
    buffers.restore(saved)
    assert buffers.view(2).slots.tolist() == [32, -1]


def test_slots() -> None:
    assert [slot(position, [4, 9], 16) for position in (0, 15, 16, 31)] == [64, 79, 144, 159]


@pytest.mark.parametrize("is_enabled", [True, False])
def test_nothing_is_collected_while_a_step_is_captured_and_then_all_is_as_before(*, is_enabled: bool) -> None:
    (gc.enable if is_enabled else gc.disable)()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() == is_enabled
    finally:
        gc.enable()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: run this on a machine with an NVIDIA GPU")
def test_a_captured_step_replays_on_new_inputs() -> None:
    device = torch.device("cuda")
    buffers = DecodeBuffers(max_rows=4, max_blocks=2, block_size=16, device=device)
    calls: list[int] = []

    def step(inputs: DecodeInputs) -> torch.Tensor:
        calls.append(len(inputs.token_ids))
        return inputs.token_ids * 10 + inputs.seq_lens

    graphs = DecodeGraphs(step, buffers)
    for token in (3, 4):
        buffers.fill([DecodeRow(token, 7, [1])], 2)
        assert graphs.run(2).tolist() == [token * 10 + 7, 0]
    assert graphs.captured == (2,)
    assert len(calls) == 3, "twice to warm up, once to record, never to replay"
