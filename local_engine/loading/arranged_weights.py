"""Presents weights as the model expects them, whatever a family's files have: names, fused matrices, order of rows.

Knows tensors and a configuration; nothing of files.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import torch

from local_engine.config import ModelConfig
from local_engine.errors import ModelUnavailable
from local_engine.loading.weight_shapes import check_sizes
from local_engine.loading.weights import LoadedFile, NibbleBlocks, ScaledBlocks, WeightSource

PLAIN: Final = "model."
# Prefix of the text part of models that also read images, in current and older files.
PREFIXES: Final = (PLAIN, "model.language_model.", "language_model.model.")
# Mixtral's names, and the usual ones.
OTHER_NAMES: Final = (
    ("mlp.gate.", "block_sparse_moe.gate."),
    ("mlp.experts.", "block_sparse_moe.experts."),
    (".gate_proj.", ".w1."),
    (".up_proj.", ".w3."),
    (".down_proj.", ".w2."),
)
QKV: Final[tuple[str, ...]] = ("q_proj", "k_proj", "v_proj")
GATE_UP: Final[tuple[str, ...]] = ("gate_proj", "up_proj")
Rows = Callable[[torch.Tensor], torch.Tensor]
Blocks = TypeVar("Blocks", NibbleBlocks, ScaledBlocks)


@dataclass(frozen=True, slots=True)
class Change:
    """How a family's file differs: its norm weights are stored minus one."""

    adds_one_to_norms: bool = False


def prefix_of(weights: WeightSource) -> str:
    """The prefix of the text layers' names."""
    return next((prefix for prefix in PREFIXES if f"{prefix}embed_tokens.weight" in weights), PLAIN)


def our_name(name: str, prefix: str) -> str:
    """The model's name for a folder's tensor; fused matrices keep theirs."""
    ours = name.replace(prefix, PLAIN, 1) if name.startswith(prefix) else name
    for usual, other in OTHER_NAMES:
        ours = ours.replace(other, usual)
    return ours


def arranged(loaded: LoadedFile, change: Change | None = None) -> LoadedFile:
    """The same file under the model's names, with rows in the model's order."""
    check_sizes(loaded.config)
    weights = ArrangedWeights(loaded.weights, loaded.config, change or Change())

    def nibbles(name: str) -> NibbleBlocks | None:
        return weights.blocks(name, loaded.nibbles)

    def blocks(name: str) -> ScaledBlocks | None:
        return weights.blocks(name, loaded.blocks)

    return replace(loaded, weights=weights, nibbles=nibbles, blocks=blocks)


class ArrangedWeights:
    """A source on top of another."""

    def __init__(self, weights: WeightSource, config: ModelConfig, change: Change) -> None:
        self._weights = weights
        self._config = config
        self._change = change
        self._prefix = prefix_of(weights)
        self._order = rotated_first(config)
        wide = config.intermediate_size
        self._heights: dict[tuple[str, ...], tuple[int, ...]] = {
            QKV: (config.heads, config.kv_heads, config.kv_heads),
            GATE_UP: (wide, wide),
        }

    def __contains__(self, name: str) -> bool:
        return self._place(name)[0] in self._weights

    def tensor(self, name: str) -> torch.Tensor:
        """As in the underlying source, in the model's order."""
        theirs, rows = self._place(name)
        tensor = rows(self._weights.tensor(theirs))
        if self._change.adds_one_to_norms and name.endswith("norm.weight"):
            tensor = tensor + 1.0
        if self._config.logit_scale != 1.0 and name == "model.norm.weight":
            tensor = tensor * self._config.logit_scale
        return tensor

    def blocks(self, name: str, read: Callable[[str], Blocks | None]) -> Blocks | None:
        """A quantised matrix, in the model's order."""
        theirs, rows = self._place(name)
        found = read(theirs)
        if found is None:
            return None
        return replace(found, values=rows(found.values), scales=rows(found.scales), offsets=rows(found.offsets))

    def _place(self, name: str) -> tuple[str, Rows]:
        """The source's name for the tensor that contains this one, and how to extract its rows."""
        theirs = f"{self._prefix}{name.removeprefix(PLAIN)}" if name.startswith(PLAIN) else name
        if theirs in self._weights:
            return theirs, self._ordered(name)
        for parts, fused in ((QKV, "qkv_proj"), (GATE_UP, "gate_up_proj")):
            part = name.split(".")[-2]
            whole = theirs.replace(part, fused)
            if part in parts and whole in self._weights:
                return whole, self._part(name, parts, parts.index(part))
        other = theirs
        for ours, named in OTHER_NAMES:
            other = other.replace(ours, named)
        return other if other in self._weights else theirs, self._ordered(name)

    def _part(self, name: str, parts: tuple[str, ...], index: int) -> Rows:
        """One of several matrices stacked in a tensor."""
        size = self._config.head_size if parts == QKV else 1
        heights = [height * size for height in self._heights[parts]]
        start, stop, ordered = sum(heights[:index]), sum(heights[: index + 1]), self._ordered(name)

        def rows(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.shape[0] != sum(heights):
                raise ModelUnavailable(
                    f"Tensor {name} is a part of {tensor.shape[0]} rows and the model's configuration says "
                    f"{sum(heights)}: the file is damaged or belongs to another configuration."
                )
            return ordered(tensor[start:stop]).contiguous()

        return rows

    def _ordered(self, name: str) -> Rows:
        order = self._order
        if order is None or name.split(".")[-2] not in QKV[:2]:
            return lambda tensor: tensor

        def rows(tensor: torch.Tensor) -> torch.Tensor:
            heads = tensor.reshape(-1, len(order), *tensor.shape[1:])
            return heads[:, order].reshape(tensor.shape)

        return rows


def rotated_first(config: ModelConfig) -> torch.Tensor | None:
    """The order of a head's rows in which each half begins with its rotated part; None if everything is rotated.

    The product of a query and a key is the same in any order, so the model, which rotates halves, need not know.
    """
    size, rotated = config.head_size, config.rotary_size
    if not 0 < rotated < size:
        return None
    ranges = [
        (0, rotated // 2),
        (rotated, (rotated + size) // 2),
        (rotated // 2, rotated),
        ((rotated + size) // 2, size),
    ]
    return torch.cat([torch.arange(*each) for each in ranges])
