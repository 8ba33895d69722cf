"""Reads a GGUF file: shape, tokenizer and dequantised float32 weights under Hugging Face's names.

llama.cpp stores the query and key rows of architecture `llama` interleaved for its own rotary layout; the order is
restored here, so that the model knows only one layout.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from local_engine.config import ModelConfig, StoredFormat
from local_engine.errors import ModelUnavailable, ModelUnsupported
from local_engine.loading.arranged_weights import arranged
from local_engine.loading.field_types import check_gguf_types
from local_engine.loading.gguf_blocks import blocks_of, bytes_per_weight
from local_engine.loading.gguf_config import (
    LONGROPE_DIVISORS,
    ROPE_DIVISORS,
    TOP_NAMES,
    Architecture,
    Values,
    architecture_of,
    read_config,
)
from local_engine.loading.gguf_file import GgufFile, GgufTensor, read_gguf_shards
from local_engine.loading.gguf_nibbles import READERS, nibbles_of
from local_engine.loading.vocabulary import build_gguf_tokenizer
from local_engine.loading.weight_shapes import check_names
from local_engine.loading.weights import LoadedFile, NibbleBlocks, ScaledBlocks
from local_engine.text.tokenizer import Tokenizer

QUANTISATIONS: Final = {
    *("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "MXFP4"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0"),
}
STORED: Final[dict[str, StoredFormat]] = {"Q8_0": "int8"}
# The widest matrix of the first layer, by its names in various architectures.
WIDEST: Final = ("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_gate_exps.weight")
# Tensors besides the layers; the last one is ignored by llama.cpp, too.
OTHER_TENSORS: Final = (ROPE_DIVISORS, r"blk\.\d+\.attn_rot_embd")
# Dimensions of a stack: experts, rows, columns.
STACKED: Final = 3


class GgufWeights:
    """Tensors of one GGUF file, dequantised on demand."""

    def __init__(self, file: GgufFile, config: ModelConfig, architecture: Architecture) -> None:
        self._tensors = {hugging_face_name(name, architecture.names): one for name, one in file.tensors.items()}
        self._config = config
        self._is_interleaved = architecture.is_interleaved

    def __contains__(self, name: str) -> bool:
        return self._find(name) is not None

    def tensor(self, name: str) -> torch.Tensor:
        """Returns one dequantised tensor; raises ModelUnsupported if it is missing or of an unknown quantisation."""
        found = self._find(name)
        if found is None:
            raise ModelUnsupported(f"The GGUF file has no tensor {name}.")
        if found.kind.name not in QUANTISATIONS:
            known = ", ".join(sorted(QUANTISATIONS))
            raise ModelUnsupported(f"Tensor {name} is {found.kind.name}; this engine reads {known}.")
        return self._in_our_order(name, torch.from_numpy(dequantise(found)))

    def nibbles(self, name: str) -> NibbleBlocks | None:
        """A matrix as stored, if that is in 4 bits."""
        found = self._find(name)
        blocks = None if found is None else nibbles_of(found)
        if blocks is None:
            return None
        return NibbleBlocks(*self._parts_in_our_order(name, blocks))

    def blocks(self, name: str) -> ScaledBlocks | None:
        """A matrix as stored, if it is quantised."""
        found = self._find(name)
        blocks = None if found is None else blocks_of(found)
        return None if blocks is None else ScaledBlocks(*self._parts_in_our_order(name, blocks), bits=blocks.bits)

    def _find(self, name: str) -> GgufTensor | None:
        """A tensor or, of a stack of experts, one's matrix."""
        if (number := re.search(r"(?<=\.experts\.)\d+(?=\.)", name)) is None:
            return self._tensors.get(name)
        stack, at = self._tensors.get(name[: number.start()] + "{}" + name[number.end() :]), int(number[0])
        if stack is None or len(stack.shape) != STACKED or at >= stack.shape[0]:
            return None
        rows = stack.shape[1]
        return GgufTensor(name, stack.shape[1:], stack.kind, stack.raw[at * rows : (at + 1) * rows])

    def _parts_in_our_order(
        self, name: str, blocks: NibbleBlocks | ScaledBlocks
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return (
            self._in_our_order(name, blocks.values),
            self._in_our_order(name, blocks.scales),
            self._in_our_order(name, blocks.offsets),
        )

    def _in_our_order(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        if self._is_interleaved and name.endswith(("q_proj.weight", "q_proj.bias")):
            return undo_interleaving(tensor, self._config.heads)
        if self._is_interleaved and name.endswith(("k_proj.weight", "k_proj.bias")):
            return undo_interleaving(tensor, self._config.kv_heads)
        return tensor


def hugging_face_name(name: str, names: Mapping[str, str]) -> str:
    """Translates llama.cpp's tensor name, with `names` for those within a layer; unknown ones are kept."""
    if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name):
        layer, part, kind = match.groups()
        return f"model.layers.{layer}.{names.get(part, part)}.{kind}"
    stem, _, kind = name.rpartition(".")
    return f"{TOP_NAMES.get(stem, stem)}.{kind}"


def undo_interleaving(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """Converts llama.cpp's row order (pairs adjacent) into the half-split one, per head."""
    rows = tensor.shape[0]
    if rows % (2 * heads):
        raise ModelUnavailable(f"A tensor of {rows} rows holds no {heads} heads: the file is damaged.")
    return (
        tensor.view(heads, rows // heads // 2, 2, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape).contiguous()
    )


def load_gguf(path: Path) -> LoadedFile:
    """Opens a GGUF file. Raises ModelUnavailable if it is damaged, ModelUnsupported if it is of another kind."""
    file = read_gguf_shards(path)
    metadata = file.metadata
    prefix, architecture = architecture_of(metadata, path.name)
    check_gguf_types(metadata, prefix, path.name)
    try:
        config = read_config(
            Values(metadata, prefix, file.tensors),
            architecture,
            path,
            vocabulary_size=len(metadata["tokenizer.ggml.tokens"]),
            divisors=lambda name: _divisors(file.tensors[name]),
        )
        tokenizer: Tokenizer = build_gguf_tokenizer(metadata)
    except KeyError as error:
        raise ModelUnavailable(f"{path.name} lacks the metadata field {error.args[0]}.") from error
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise ModelUnavailable(f"{path.name} has damaged metadata ({error}).") from error
    others = re.compile("|".join(OTHER_TENSORS + (LONGROPE_DIVISORS if architecture.has_longrope else ())))
    parts = [name for name in file.tensors if not others.fullmatch(name)]
    check_names({hugging_face_name(name, architecture.names): name for name in parts}, config, file=path.name)
    weights = GgufWeights(file, config, architecture)
    stored, held = _stored(file.tensors), _bytes_per_weight(file.tensors)
    return arranged(LoadedFile(config, weights, tokenizer, weights.nibbles, stored, weights.blocks, held))


def _divisors(tensor: GgufTensor) -> list[float]:
    if len(tensor.shape) != 1 or tensor.kind != GGMLQuantizationType.F32:
        raise ValueError(f"{tensor.name} is no list of float32 numbers")
    return dequantise(tensor).tolist()


def _stored(tensors: Mapping[str, GgufTensor]) -> StoredFormat | None:
    """The format of the first layer's widest matrix: files store a few others with more bits."""
    found = next((tensors[name] for name in WIDEST if name in tensors), None)
    return None if found is None else "int4" if found.kind in READERS else STORED.get(found.kind.name)


def _bytes_per_weight(tensors: Mapping[str, GgufTensor]) -> float:
    """The mean over all matrices."""
    sizes = [(math.prod(tensor.shape), tensor.kind) for tensor in tensors.values() if len(tensor.shape) > 1]
    return sum(size * bytes_per_weight(kind) for size, kind in sizes) / max(1, sum(size for size, _ in sizes))


def dequantise(tensor: GgufTensor) -> np.ndarray:
    """A tensor's values in float32, as a copy."""
    if tensor.kind == GGMLQuantizationType.F32:
        return np.array(tensor.raw).view(np.float32).reshape(tensor.shape)
    values: np.ndarray = dequantize(np.asarray(tensor.raw), tensor.kind)
    return np.array(values, dtype=np.float32).reshape(tensor.shape)
