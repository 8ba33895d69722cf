"""A matrix product with fixed weights, one class per weight format."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch.nn import functional as F


class Linear(Protocol):
    """Maps [rows, in] to [rows, out]."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...


LinearBuilder = Callable[[torch.Tensor, torch.Tensor | None], Linear]


class DenseLinear:
    """Weights kept as they are: float32 or bfloat16."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self._weight, self._bias)
