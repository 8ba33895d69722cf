"""The feed-forward part: a gated product, or experts of which each token uses a few."""

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
    """Gate and up projections are one product."""

    gate_up: Linear
    down: Linear
    activate: Callable[[torch.Tensor], torch.Tensor]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] to the same."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(self.activate(gate) * up)


@dataclass(frozen=True, slots=True)
class Experts:
    """The router's `used` most likely experts compute a row, weighted by its probabilities."""

    router: Linear
    experts: list[FeedForward]
    used: int
    shares_add_up: bool

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, hidden] to the same; a row's experts are summed in a fixed order, independent of other rows."""
        shares, chosen = self.router(x).float().softmax(dim=-1).topk(self.used, dim=-1)
        if self.shares_add_up:
            shares = shares / shares.sum(dim=-1, keepdim=True)
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for number in chosen.unique().tolist():
            rows, places = torch.where(chosen == number)
            out.index_add_(0, rows, self.experts[number](x[rows]).float() * shares[rows, places, None])
        return out.to(x.dtype)
