"""What stands between attention and the next layer: a gated product, or experts of which each token takes a few."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import torch
from torch.nn import functional as F

from local_engine.config import Activation
from local_engine.layers.linear import Linear

ACTIVATIONS: Final[dict[Activation, Callable[[torch.Tensor], torch.Tensor]]] = {
    "silu": F.silu,
    "gelu": partial(F.gelu, approximate="tanh"),
}


class FeedForwardPart(Protocol):
    """Maps [rows, hidden] to the same."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class FeedForward:
    """Gate and up are one product."""

    gate_up: Linear
    down: Linear
    activate: Callable[[torch.Tensor], torch.Tensor]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] to the same."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(self.activate(gate) * up)


@dataclass(frozen=True, slots=True)
class Experts:
    """The router's `used` likeliest experts compute a row, each weighed by its share."""

    router: Linear
    experts: list[FeedForward]
    used: int
    shares_add_up: bool

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] to the same; a row's experts are added in their order, whatever other rows take."""
        shares, chosen = self.router(x).float().softmax(dim=-1).topk(self.used, dim=-1)
        if self.shares_add_up:
            shares = shares / shares.sum(dim=-1, keepdim=True)
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for number in chosen.unique().tolist():
            rows, places = torch.where(chosen == number)
            out.index_add_(0, rows, self.experts[number](x[rows]).float() * shares[rows, places, None])
        return out.to(x.dtype)
