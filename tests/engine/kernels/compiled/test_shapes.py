"""Attention assembles for every GPU that the engine supports, and no batch of a running engine recompiles it."""

from typing import Any

import pytest
import torch

from local_engine.attention import triton_paged_decode, triton_paged_extend
from local_engine.attention.triton_paged_decode import paged_decode
from local_engine.attention.triton_paged_extend import paged_extend
from local_engine.kernels import sampling
from local_engine.kernels.sampling import SamplingTensors, sample
from tests.engine.kernels.compiled.offline import SHARED_BYTES_PER_BLOCK, Compiled, compiling
from tests.engine.kernels.compiled.test_hopper import BF16, DIM, HEADS, KV_HEADS


def compiled(
    capability: int, *, sequences: int = 1, blocks: int = 1, dtype: torch.dtype = BF16, first: int = 0
) -> list[Compiled]:
    """Compiles decode and a chunk of a prompt, for `sequences` sequences of `blocks` blocks after `first` others."""
    cache = torch.zeros(8, 16, KV_HEADS, DIM, dtype=dtype)
    table = torch.zeros(first + sequences, blocks, dtype=torch.int32)[first:]
    lengths = torch.ones(first + sequences, dtype=torch.int32)[first:]
    q = torch.zeros(64 * sequences, HEADS, DIM, dtype=dtype)
    bounds = torch.arange(0, 64 * sequences + 1, 64, dtype=torch.int32)
    with compiling(capability) as kernels:
        paged_decode(q[:sequences], cache, cache, table, lengths, scale=1.0, splits=4)
        paged_extend(q, cache, cache, table, lengths, bounds, max_query_tokens=64, scale=1.0)
    return kernels


@pytest.mark.parametrize("capability", list(SHARED_BYTES_PER_BLOCK))
def test_attention_fits_every_gpu(capability: int) -> None:
    """Also with one sequence in one block, since sizes of 1 are compiled as constants."""
    for kernel in compiled(capability):
        assert kernel.shared_bytes <= SHARED_BYTES_PER_BLOCK[capability], kernel.name
        assert kernel.stack_bytes <= 32, f"{kernel.name} spills {kernel.stack_bytes} bytes"


def test_float32_keeps_its_sums_in_registers() -> None:
    for kernel in compiled(90, dtype=torch.float32):
        assert kernel.stack_bytes <= 64, f"{kernel.name} spills {kernel.stack_bytes} bytes"


def variants(kernel: Any) -> int:
    return sum(len(caches[0]) for caches in kernel.device_caches.values())


def test_batches_of_any_size_share_one_compilation() -> None:
    kernels = (vars(triton_paged_decode)["_split_kernel"], vars(triton_paged_extend)["_extend_kernel"])
    compiled(90, sequences=2, blocks=5)
    before = [variants(kernel) for kernel in kernels]
    compiled(90, sequences=16, blocks=16)
    compiled(90, sequences=1, blocks=1)
    compiled(90, sequences=3, blocks=5, first=1)
    assert [variants(kernel) for kernel in kernels] == before


def test_draws_for_any_number_of_rows_share_one_compilation() -> None:
    """Here a single row is shared by four programs, and four rows have one each."""
    kernels = [vars(sampling)[f"_{name}_kernel"] for name in ("peak", "threshold", "draw", "choose")]
    before: list[int] = []
    for rows in (2, 1, 4, 16):
        floats, ints = torch.zeros(rows), torch.zeros(rows, dtype=torch.int32)
        with compiling(90):
            sample(torch.zeros(rows, 32_000), SamplingTensors(floats, ints, floats, floats, ints.long(), ints))
        before = before or [variants(kernel) for kernel in kernels]
    assert [variants(kernel) for kernel in kernels] == before
