"""Experts: the router's choice, tiles over the pairs, and the products of all experts at once."""

import pytest
import torch

from local_engine.kernels import expert_routing, reference
from local_engine.kernels.expert_routing import choose, lay_out, most_tiles
from local_engine.kernels.experts import GroupedExperts, Stack, group_experts, stack
from local_engine.kernels.fp8 import Fp8Weight, quantise_rows, quantise_weight
from local_engine.kernels.grouped import grouped_matmul, tile_height
from local_engine.kernels.int4 import Int4Weight, quantise
from local_engine.kernels.linear import Fp8Linear, Int4Linear
from local_engine.layers.feed_forward import ACTIVATIONS, Experts, FeedForward
from local_engine.layers.linear import DenseLinear
from tests.engine.kernels.builders import relative_error

COUNT, USED, HIDDEN, SIZE = 5, 2, 96, 64


@pytest.mark.parametrize("adds_up", [True, False])
@pytest.mark.parametrize(("experts", "used"), [(5, 2), (8, 8), (128, 8)])
def test_the_likeliest_experts_are_taken_in_their_order(experts: int, used: int, *, adds_up: bool) -> None:
    torch.manual_seed(experts)
    logits = torch.randn(4, experts).to(torch.bfloat16)
    logits[1] = 0.5
    chosen, shares = choose(logits, used, shares_add_up=adds_up)
    wanted, wanted_shares = reference.choose_experts(logits, used, shares_add_up=adds_up)
    assert torch.equal(chosen, wanted)
    torch.testing.assert_close(shares, wanted_shares)


def test_a_padded_row_takes_no_experts_and_a_broken_one_none_that_there_is_not() -> None:
    """Whatever the memory contains: an expert beyond the last would be read out of bounds."""
    nan = float("nan")
    logits = torch.tensor([[nan, nan, nan], [1.0, nan, 3.0], [float("-inf")] * 3, [nan, nan, nan]])
    chosen, _ = choose(logits, 2, shares_add_up=True, slots=torch.tensor([-1, 4, 0, 7]))
    assert chosen.tolist() == [[-1, -1], [0, 2], [0, 1], [0, 1]]


@pytest.mark.parametrize("height", [16, 32])
@pytest.mark.parametrize("kind", ["spread", "one expert", "some rows padded", "nobody", "many"])
def test_tiles_hold_every_pair_once(kind: str, height: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many that each program needs several iterations."""
    monkeypatch.setattr(expert_routing, "PAIRS", 64)
    torch.manual_seed(height)
    rows = 150 if kind == "many" else 21
    chosen = torch.rand(rows, 7).argsort(-1)[:, :3].int()
    if kind == "one expert":
        chosen[:] = 4
    if kind == "some rows padded":
        chosen[::2] = -1
    if kind == "nobody":
        chosen[:] = -1
    tiles = lay_out(chosen, 7, height)
    assert tiles.pairs.shape == (most_tiles(chosen.numel(), 7, height), height)
    flat, seen = chosen.flatten(), list[int]()
    for expert, pairs in zip(tiles.experts.tolist(), tiles.pairs, strict=True):
        held = [pair for pair in pairs.tolist() if pair >= 0] if expert >= 0 else []
        assert held == sorted(held)
        assert all(flat[pair] == expert for pair in held)
        seen += held
    assert sorted(seen) == (flat >= 0).nonzero().flatten().tolist()
    in_use = [expert for expert in tiles.experts.tolist() if expert >= 0]
    assert tiles.experts.tolist() == sorted(in_use) + [-1] * (len(tiles.experts) - len(in_use))


def test_there_are_tiles_enough_however_pairs_fall() -> None:
    """For all distributions of up to 12 pairs among three experts; some distribution needs all tiles."""
    for pairs in range(1, 13):
        needed = [
            sum(-(-count // 4) for count in (first, second, pairs - first - second))
            for first in range(pairs + 1)
            for second in range(pairs + 1 - first)
        ]
        assert max(needed) == most_tiles(pairs, 3, 4)


def experts_of(gate_up: Stack, down: Stack, router: torch.Tensor) -> GroupedExperts:
    return GroupedExperts(DenseLinear(router, None), gate_up, down, COUNT, USED, shares_add_up=True)


def random_experts(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gate and up, down, and the router."""
    torch.manual_seed(9)
    gate_up, down = torch.randn(COUNT, 2 * SIZE, HIDDEN), torch.randn(COUNT, HIDDEN, SIZE)
    return (gate_up / HIDDEN**0.5).to(dtype), (down / SIZE**0.5).to(dtype), torch.randn(COUNT, HIDDEN).to(dtype)


@pytest.mark.parametrize(
    ("dtype", "rows", "bound"), [(torch.float32, 3, 1e-5), (torch.float32, 60, 1e-5), (torch.bfloat16, 90, 0.03)]
)
def test_experts_compute_what_each_would_alone(dtype: torch.dtype, rows: int, bound: float) -> None:
    """In tiles of 16, 32 and 64; a padded row is ignored, whatever it contains. Where a device rounds float32 to
    bfloat16, the interpreter truncates it."""
    gate_up, down, router = random_experts(dtype)
    grouped = experts_of(gate_up.flatten(0, 1), down.flatten(0, 1), router)
    x, slots = torch.randn(rows, HIDDEN).to(dtype), torch.arange(rows)
    x[1], slots[1] = float("nan"), -1
    got = grouped(x, slots)
    chosen, shares = reference.choose_experts(x @ router.T, USED, shares_add_up=True)
    chosen[1] = -1
    assert relative_error(got, reference.experts(x, chosen, shares, gate_up, down)) < bound
    assert not got[1].any()


def test_four_bits_of_every_expert_are_unpacked_on_the_way() -> None:
    """With gates, for which programs hold two strips, and with more columns than fit one iteration."""
    gate_up, down, router = random_experts(torch.float32)
    packed = [quantise(part.flatten(0, 1), 32, torch.float32) for part in (gate_up, down)]
    weights = [reference.dequantise_int4(part.packed, part.scales, part.offsets) for part in packed]
    x = torch.randn(7, HIDDEN)
    chosen, shares = reference.choose_experts(x @ router.T, USED, shares_add_up=True)
    wanted = reference.experts(x, chosen, shares, weights[0].view_as(gate_up), weights[1].view_as(down))
    assert relative_error(experts_of(packed[0], packed[1], router)(x), wanted) < 1e-5


def test_e4m3_rows_and_weights_are_multiplied_with_their_scales() -> None:
    """Compared with the rounded values, since the interpreter rounds carries wrongly (see test_quantised)."""
    gate_up, _, router = random_experts(torch.float32)
    weight, x = quantise_weight(gate_up.flatten(0, 1)), torch.randn(6, HIDDEN)
    chosen, _ = choose(x @ router.T, USED, shares_add_up=True)
    values, scales = quantise_rows(x)
    tiles = lay_out(chosen, COUNT, 16)
    rows, matrices = values.float() * scales, (weight.values.float() * weight.scales).view_as(gate_up)
    wide = grouped_matmul(values, weight, tiles, 6 * USED, used=USED, x_scales=scales, gates=True, dtype=torch.float32)
    wanted = torch.stack([rows[pair // USED] @ matrices[expert].T for pair, expert in enumerate(chosen.flatten())])
    assert relative_error(wide, reference.silu_mul(wanted)) < 1e-5


def test_what_is_stacked_is_what_each_expert_had() -> None:
    """For 4-bit weights with two group sizes the smaller one is used, which is equivalent."""
    torch.manual_seed(1)
    dense = [DenseLinear(torch.randn(4, 64), None) for _ in range(3)]
    part = FeedForward(dense[0], dense[1], ACTIVATIONS["silu"])
    grouped = group_experts(Experts(dense[2], [part, part], used=1, shares_add_up=False))
    assert isinstance(grouped.down, torch.Tensor)
    assert torch.equal(grouped.down, torch.cat([dense[1].weight] * 2))
    wide, narrow = quantise(torch.randn(8, 128), 128), quantise(torch.randn(8, 128), 32, torch.float16)
    both = stack([Int4Linear(wide, None), Int4Linear(narrow, None)])
    assert isinstance(both, Int4Weight)
    assert both.group == 32
    unpacked = [reference.dequantise_int4(one.packed, one.scales, one.offsets) for one in (wide, narrow, both)]
    assert torch.equal(unpacked[2], torch.cat(unpacked[:2]))
    e4m3 = stack([Fp8Linear(torch.randn(4, 64), None)] * 2)
    assert isinstance(e4m3, Fp8Weight)
    assert (e4m3.values.dtype, e4m3.scales.shape) == (torch.float8_e4m3fn, (8, 1))
    with pytest.raises(AssertionError, match="of one format"):
        stack([Int4Linear(wide, None), dense[0]])


@pytest.mark.parametrize(
    ("rows", "height"), [(1, 16), (64, 16), (256, 16), (257, 32), (1024, 64), (2048, 128), (8192, 128)]
)
def test_tiles_are_as_high_as_an_expert_has_rows(rows: int, height: int) -> None:
    """For 128 experts, 8 per row."""
    assert tile_height(8 * rows, 128, torch.bfloat16) == height
    assert tile_height(8 * rows, 128, torch.float32) == min(height, 32)
