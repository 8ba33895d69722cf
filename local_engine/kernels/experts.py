"""A layer's experts on a GPU: the routing stays on the device, and two launches multiply all of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from local_engine.kernels.expert_routing import Tiles, add_up, choose, lay_out
from local_engine.kernels.fp8 import Fp8Weight, quantise_rows
from local_engine.kernels.grouped import grouped_int4_matmul, grouped_matmul, tile_height
from local_engine.kernels.int4 import Int4Weight
from local_engine.kernels.linear import Fp8Linear, Int4Linear
from local_engine.layers.feed_forward import Experts
from local_engine.layers.linear import DenseLinear, Linear

Stack = Tensor | Fp8Weight | Int4Weight


@dataclass(frozen=True, slots=True)
class GroupedExperts:
    """`Experts`, gated by silu, with their matrices stacked; each row's results are summed in a fixed order."""

    router: Linear
    gate_up: Stack
    down: Stack
    count: int
    used: int
    shares_add_up: bool

    def __call__(self, x: Tensor, slots: Tensor | None = None) -> Tensor:
        """[rows, hidden] to the same; a row with slot -1 is padding, uses no experts and becomes zeros."""
        chosen, shares = choose(self.router(x), self.used, shares_add_up=self.shares_add_up, slots=slots)
        pairs = chosen.numel()
        tiles = lay_out(chosen, self.count, tile_height(pairs, self.count, x.dtype))
        gated = _product(x, self.gate_up, tiles, pairs, used=self.used, gates=True)
        return add_up(_product(gated, self.down, tiles, pairs, used=1, gates=False), chosen, shares)


def _product(x: Tensor, weight: Stack, tiles: Tiles, pairs: int, *, used: int, gates: bool) -> Tensor:
    if isinstance(weight, Int4Weight):
        return grouped_int4_matmul(x, weight, tiles, pairs, used=used, gates=gates)
    if isinstance(weight, Fp8Weight):
        values, scales = quantise_rows(x)
        return grouped_matmul(values, weight, tiles, pairs, used=used, x_scales=scales, gates=gates, dtype=x.dtype)
    return grouped_matmul(x, weight, tiles, pairs, used=used, gates=gates)


def group_experts(experts: Experts) -> GroupedExperts:
    """The same experts, with the weights of each product in one stack."""
    return GroupedExperts(
        experts.router,
        stack([expert.gate_up for expert in experts.experts]),
        stack([expert.down for expert in experts.experts]),
        count=len(experts.experts),
        used=experts.used,
        shares_add_up=experts.shares_add_up,
    )


def stack(linears: Sequence[Linear]) -> Stack:
    """Stacks the experts' matrices; they share a shape and a format, and have no biases."""
    dense = [linear.weight for linear in linears if isinstance(linear, DenseLinear) and linear.bias is None]
    if len(dense) == len(linears):
        return torch.cat(dense)
    e4m3 = [linear.weight for linear in linears if isinstance(linear, Fp8Linear) and linear.bias is None]
    if len(e4m3) == len(linears):
        return Fp8Weight(torch.cat([weight.values for weight in e4m3]), torch.cat([weight.scales for weight in e4m3]))
    int4 = [linear.weight for linear in linears if isinstance(linear, Int4Linear) and linear.bias is None]
    assert len(int4) == len(linears), "experts of one layer are of one format and have no biases"
    return _stack_int4(int4)


def _stack_int4(weights: Sequence[Int4Weight]) -> Int4Weight:
    """Uses the smallest group size: one stored in 4 bits and one that was rounded may differ."""
    groups = max(weight.scales.shape[1] for weight in weights)
    dtypes = {weight.scales.dtype for weight in weights}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.float32

    def spread(part: Tensor) -> Tensor:
        return part.to(dtype).repeat_interleave(groups // part.shape[1], dim=1)

    return Int4Weight(
        torch.cat([weight.packed for weight in weights]),
        torch.cat([spread(weight.scales) for weight in weights]),
        torch.cat([spread(weight.offsets) for weight in weights]),
    )
