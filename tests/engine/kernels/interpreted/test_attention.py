"""Paged decode and extend against the reference, with NaN wherever kernels must not read."""

import pytest
import torch

from local_engine.attention.triton_paged_decode import paged_decode
from local_engine.attention.triton_paged_extend import choose_tile_rows, paged_extend
from local_engine.cuda_graph import slot
from local_engine.kernels import reference
from local_engine.kernels.rope_store import rope_store
from local_engine.model_runner import lazy_zeros
from tests.engine.kernels.builders import make_paged, relative_error

FLOAT32, FLOAT16, BFLOAT16 = (torch.float32, 1e-5), (torch.float16, 2e-3), (torch.bfloat16, 1e-2)
# heads, kv heads, head dim, block size, window, (type, bound on the relative error), splits
SHAPES = [
    (4, 2, 64, 16, 0, FLOAT32, 1),
    (4, 2, 64, 16, 0, FLOAT32, 4),
    (9, 3, 64, 32, 0, FLOAT32, 3),
    (2, 2, 80, 16, 0, FLOAT32, 2),
    (4, 1, 128, 16, 0, FLOAT32, 2),
    (4, 2, 64, 16, 70, FLOAT32, 1),
    (4, 2, 64, 64, 70, FLOAT32, 2),
    (4, 2, 64, 16, 0, FLOAT16, 2),
    (4, 2, 64, 16, 0, BFLOAT16, 2),
]


@pytest.mark.parametrize(("heads", "kv_heads", "dim", "block_size", "window", "precision", "splits"), SHAPES)
def test_decode(
    heads: int, kv_heads: int, dim: int, block_size: int, window: int, precision: tuple[torch.dtype, float], splits: int
) -> None:
    dtype, bound = precision
    torch.manual_seed(heads * dim + splits)
    paged = make_paged([1, 200, 0, 64], kv_heads=kv_heads, dim=dim, block_size=block_size, dtype=dtype)
    q = torch.randn(4, heads, dim).to(dtype)
    caches = (paged.k_cache, paged.v_cache, paged.block_table, paged.seq_lens)
    got = paged_decode(q, *caches, scale=dim**-0.5, window=window, splits=splits)
    one_each = torch.arange(5, dtype=torch.int32)
    wanted = reference.paged_attention(q, *caches, one_each, scale=dim**-0.5, window=window)
    assert relative_error(got, wanted) < bound
    assert not got[2].any(), "a padded row has no tokens and must yield zeros"


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "block_size", "window", "precision", "splits"), [*SHAPES[::2], SHAPES[3]]
)
def test_extend(
    heads: int, kv_heads: int, dim: int, block_size: int, window: int, precision: tuple[torch.dtype, float], splits: int
) -> None:
    """In one batch: a whole prompt, a chunk after a cached prefix, an absent sequence, a decode row, verify rows."""
    dtype, bound = precision
    torch.manual_seed(heads * dim + splits)
    paged = make_paged([90, 150, 0, 33, 70], kv_heads=kv_heads, dim=dim, block_size=block_size, dtype=dtype)
    cu_seqlens_q = torch.tensor([0, 90, 130, 130, 131, 136], dtype=torch.int32)
    # The queries are a slice of the merged projection's output, so their rows are strided.
    q = torch.randn(136, heads + 2, dim).to(dtype)[:, :heads]
    caches = (paged.k_cache, paged.v_cache, paged.block_table, paged.seq_lens, cu_seqlens_q)
    got = paged_extend(q, *caches, max_query_tokens=90, scale=dim**-0.5, window=window)
    wanted = reference.paged_attention(q, *caches, scale=dim**-0.5, window=window)
    assert relative_error(got, wanted) < bound


def test_fp8_cache() -> None:
    torch.manual_seed(3)
    paged = make_paged([40, 9], dtype=torch.float8_e4m3fn)
    q = torch.randn(2, 4, 64)
    caches = (paged.k_cache, paged.v_cache, paged.block_table, paged.seq_lens)
    bounds = torch.tensor([0, 1, 2], dtype=torch.int32)
    wanted = reference.paged_attention(q, *caches, bounds, scale=0.125)
    decoded = paged_decode(q, *caches, scale=0.125, splits=2)
    extended = paged_extend(q, *caches, bounds, max_query_tokens=1, scale=0.125)
    assert relative_error(decoded, wanted) < 1e-5
    assert relative_error(extended, wanted) < 1e-5


def test_a_row_does_not_depend_on_its_batch() -> None:
    """Bitwise, for a fixed number of splits, as in deterministic mode."""
    torch.manual_seed(4)
    paged = make_paged([150, 31])
    q = torch.randn(2, 4, 64)
    both = paged_decode(q, paged.k_cache, paged.v_cache, paged.block_table, paged.seq_lens, scale=0.125, splits=2)
    alone = paged_decode(
        q[1:], paged.k_cache, paged.v_cache, paged.block_table[1:], paged.seq_lens[1:], scale=0.125, splits=2
    )
    assert torch.equal(both[1:], alone)


@pytest.mark.parametrize(
    ("group", "tokens", "rows"), [(4, 1, 16), (4, 5, 32), (4, 64, 128), (4, 8192, 128), (7, 2, 16), (64, 1, 64)]
)
def test_tile_rows_hold_the_group_and_no_more_than_needed(group: int, tokens: int, rows: int) -> None:
    assert choose_tile_rows(group, tokens) == rows


def test_blocks_beyond_two_billion_elements_are_found() -> None:
    """As many of a small model's keys as fit a large GPU, whose offsets exceed 32 bits; only the memory that is touched
    is allocated."""
    torch.manual_seed(8)
    kv_heads, dim, block_size = 1, 128, 64
    far, near = ([262_199, 262_150], 262_200), ([1, 0], 2)
    qkv, turns = torch.randn(70, 3 * kv_heads * dim), torch.rand(70, dim // 2)
    got: list[list[torch.Tensor]] = []
    for blocks, count in (far, near):
        sizes = (count, block_size, kv_heads, dim)
        keys, values = (lazy_zeros(sizes, torch.float8_e4m3fn, torch.device("cpu")) for _ in range(2))
        slots = torch.tensor([slot(at, blocks, block_size) for at in range(70)], dtype=torch.int32)
        rows = qkv.clone()
        rope_store(rows, (turns, turns), torch.arange(70), slots, (keys, values), q_heads=kv_heads)
        table, lengths = torch.tensor([blocks], dtype=torch.int32), torch.tensor([70], dtype=torch.int32)
        q, bounds = rows.view(70, -1, dim)[:, :kv_heads], torch.tensor([0, 70], dtype=torch.int32)
        decoded = paged_decode(q[-1:], keys, values, table, lengths, scale=0.1, splits=1)
        extended = paged_extend(q, keys, values, table, lengths, bounds, max_query_tokens=70, scale=0.1)
        got.append([decoded, extended])
    assert got[0][0].any()
    assert torch.equal(got[0][0], got[1][0])
    assert torch.equal(got[0][1], got[1][1])
