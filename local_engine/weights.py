"""The shape in which every file format hands its weights over: float32 tensors on demand, Hugging Face's names.

A file that holds matrices in 4 bits may hand those over as they are too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import torch

from local_engine.config import ModelConfig, StoredFormat
from local_engine.tokenizer import Tokenizer

# Inputs that share a scale and an offset.
BLOCK: Final = 32


class WeightSource(Protocol):
    """Named tensors, read one at a time so that loading never holds the model twice."""

    def __contains__(self, name: str) -> bool: ...

    def tensor(self, name: str) -> torch.Tensor:
        """Return the tensor in float32 and row-major [out, in]; raises ModelUnsupported when it is missing."""
        ...


@dataclass(frozen=True, slots=True)
class NibbleBlocks:
    """A matrix [out, in] of 4 bits: a weight is its block's scale times its value, 0 to 15, plus its block's offset."""

    values: torch.Tensor
    scales: torch.Tensor
    offsets: torch.Tensor

    def to(self, device: torch.device) -> "NibbleBlocks":
        """The same on a device."""
        return NibbleBlocks(self.values.to(device), self.scales.to(device), self.offsets.to(device))


def stack_nibbles(parts: list[NibbleBlocks | None]) -> NibbleBlocks | None:
    """Matrices one under another; None unless all have 4 bits."""
    present = [part for part in parts if part is not None]
    if len(present) < len(parts):
        return None
    return NibbleBlocks(
        torch.cat([part.values for part in present]),
        torch.cat([part.scales for part in present]),
        torch.cat([part.offsets for part in present]),
    )


def no_nibbles(name: str) -> NibbleBlocks | None:
    """What a file without 4-bit matrices answers."""
    del name
    return None


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """Everything a model file says: shape, weights, tokenizer; `nibbles` gives a 4-bit matrix as the file has it.

    `stored` is the format of most matrices, None for 16 bits and more, and for what no product computes in.
    """

    config: ModelConfig
    weights: WeightSource
    tokenizer: Tokenizer
    nibbles: Callable[[str], NibbleBlocks | None] = no_nibbles
    stored: StoredFormat | None = None
