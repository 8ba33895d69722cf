"""The common interface of all file formats: float32 tensors on demand, under Hugging Face's names.

Files with quantised matrices may provide those without conversion, too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import torch

from local_engine.config import ModelConfig, StoredFormat
from local_engine.text.tokenizer import Tokenizer

# Inputs that share a scale and an offset.
BLOCK: Final = 32


class WeightSource(Protocol):
    """Named tensors, read one at a time so that loading never holds the model twice."""

    def __contains__(self, name: str) -> bool: ...

    def tensor(self, name: str) -> torch.Tensor:
        """Returns the tensor in float32, row-major [out, in]; raises ModelUnsupported if it is missing."""
        ...


@dataclass(frozen=True, slots=True)
class NibbleBlocks:
    """A 4-bit matrix [out, in]: a weight is its block's scale times its value, 0 to 15, plus its block's offset."""

    values: torch.Tensor
    scales: torch.Tensor
    offsets: torch.Tensor

    def to(self, device: torch.device) -> "NibbleBlocks":
        """The same on a device."""
        return NibbleBlocks(self.values.to(device), self.scales.to(device), self.offsets.to(device))


@dataclass(frozen=True, slots=True)
class ScaledBlocks:
    """A matrix [out, in] of `bits` bits, 4 or 8: a weight is its block's scale times its value plus its block's offset.

    Rounded once to float32, that is exactly the float32 weight. Scales and offsets are [out, blocks], with blocks of 32
    inputs or, for 8-bit values, possibly 16.
    """

    values: torch.Tensor
    scales: torch.Tensor
    offsets: torch.Tensor
    bits: int

    @property
    def block(self) -> int:
        """Inputs that share a scale and an offset."""
        return self.values.shape[1] // self.scales.shape[1]


def stack_blocks(parts: list[ScaledBlocks | None]) -> ScaledBlocks | None:
    """Stacks matrices, with the most bits and the shortest blocks of any; None unless all are quantised."""
    present = [part for part in parts if part is not None]
    if len(present) < len(parts):
        return None
    block = min(part.block for part in present)
    return ScaledBlocks(
        torch.cat([part.values for part in present]),
        torch.cat([part.scales.repeat_interleave(part.block // block, dim=1) for part in present]),
        torch.cat([part.offsets.repeat_interleave(part.block // block, dim=1) for part in present]),
        bits=max(part.bits for part in present) if block == BLOCK else 8,
    )


def stack_nibbles(parts: list[NibbleBlocks | None]) -> NibbleBlocks | None:
    """Stacks matrices; None unless all have 4 bits."""
    present = [part for part in parts if part is not None]
    if len(present) < len(parts):
        return None
    return NibbleBlocks(
        torch.cat([part.values for part in present]),
        torch.cat([part.scales for part in present]),
        torch.cat([part.offsets for part in present]),
    )


def no_nibbles(name: str) -> NibbleBlocks | None:
    """For files without 4-bit matrices."""
    del name
    return None


def no_blocks(name: str) -> ScaledBlocks | None:
    """For files without quantised matrices, or without a guarantee on their rounding."""
    del name
    return None


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """Everything in a model file: shape, weights, tokenizer.

    `nibbles` gives a 4-bit matrix as stored, `blocks` a quantised one that reproduces its float32 weights exactly.
    `stored` is the format of most matrices, None for 16 bits and more, and for formats that no product uses.
    `bytes_per_weight` is the average size of a weight kept as stored, or in 16 bits where that is exact.
    """

    config: ModelConfig
    weights: WeightSource
    tokenizer: Tokenizer
    nibbles: Callable[[str], NibbleBlocks | None] = no_nibbles
    stored: StoredFormat | None = None
    blocks: Callable[[str], ScaledBlocks | None] = no_blocks
    bytes_per_weight: float = 4.0
