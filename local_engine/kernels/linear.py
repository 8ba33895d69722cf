"""Products with quantised weights for the GPU, as `LinearBuilder`s for a model."""

import torch

from local_engine.kernels.fp8 import fp8_matmul, quantise_weight
from local_engine.kernels.int4 import Int4Weight, int4_matmul, pack, quantise
from local_engine.layers.linear import DenseLinear, Linear
from local_engine.loading.weights import NibbleBlocks

INT4_GROUP = 128


class Fp8Linear:
    """e4m3 weights with a scale per output; activations are quantised by rows first."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight = quantise_weight(weight)
        self.bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        out = fp8_matmul(x, self.weight)
        return out if self.bias is None else out + self.bias


class Int4Linear:
    """Four-bit weights in groups with a scale and an offset; activations are not quantised."""

    def __init__(self, weight: Int4Weight, bias: torch.Tensor | None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        out = int4_matmul(x, self.weight)
        return out if self.bias is None else out + self.bias


def build_fp8_linear(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """Fp8Linear, or the unquantised weight if a side is no multiple of 16, which the hardware's product requires."""
    return Fp8Linear(weight, bias) if all(side % 16 == 0 for side in weight.shape) else DenseLinear(weight, bias)


def build_int4_linear(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """Int4Linear with the largest group of 128, 64 or 32 that divides the columns, else the unquantised weight."""
    for group in (INT4_GROUP, 64, 32):
        if weight.shape[1] % group == 0:
            return Int4Linear(quantise(weight, group, weight.dtype), bias)
    return DenseLinear(weight, bias)


def stored_int4_linear(blocks: NibbleBlocks, bias: torch.Tensor | None) -> Linear:
    """A matrix stored in 4 bits, with scales and offsets in float16, in the largest groups that they allow."""
    together = next(
        count for count in (4, 2, 1) if _are_alike(blocks.scales, count) and _are_alike(blocks.offsets, count)
    )
    scales, offsets = (part[:, ::together].half().contiguous() for part in (blocks.scales, blocks.offsets))
    return Int4Linear(Int4Weight(pack(blocks.values), scales, offsets), bias)


def _are_alike(parts: torch.Tensor, together: int) -> bool:
    """Whether every run of that many blocks in a row has a single value."""
    if parts.shape[1] % together:
        return False
    runs = parts.unflatten(1, (-1, together))
    return bool((runs == runs[..., :1]).all())
