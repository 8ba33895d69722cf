"""The shape in which every file format hands its weights over: float32 tensors on demand, Hugging Face's names."""

from dataclasses import dataclass
from typing import Protocol

import torch

from local_engine.config import ModelConfig
from local_engine.tokenizer import Tokenizer


class WeightSource(Protocol):
    """Named tensors, read one at a time so that loading never holds the model twice."""

    def __contains__(self, name: str) -> bool: ...

    def tensor(self, name: str) -> torch.Tensor:
        """Return the tensor in float32 and row-major [out, in]; raises ModelUnsupported when it is missing."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """Everything a model file says: shape, weights, tokenizer."""

    config: ModelConfig
    weights: WeightSource
    tokenizer: Tokenizer
