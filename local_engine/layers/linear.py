"""Matrix products with fixed weights, one class per weight format."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional as F

from local_engine.loading.weights import NibbleBlocks


class Linear(Protocol):
    """Maps [rows, in] to [rows, out]."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...


LinearBuilder = Callable[[torch.Tensor, torch.Tensor | None], Linear]


@dataclass(frozen=True, slots=True)
class StoredLinears:
    """Products over matrices stored in 4 bits, without conversion: where to get one, and the class to build."""

    nibbles: Callable[[str], NibbleBlocks | None]
    build: Callable[[NibbleBlocks, torch.Tensor | None], Linear]


class DenseLinear:
    """Weights kept as they are: float32 or bfloat16."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight, self.bias)
