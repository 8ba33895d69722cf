"""A model's weights as the native decoder reads them, and what shapes of model it can read."""

import ctypes
from collections.abc import Callable
from typing import Final, Literal, TypeVar

import torch

from local_engine.config import ModelConfig
from local_engine.layers.rotary import rotation_tables
from local_engine.native.build import load_decoder, runnable_sets
from local_engine.native.packed import (
    LANES,
    CLayer,
    CMatrix,
    CModel,
    PackedMatrix,
    pack_bytes,
    pack_float,
    pack_nibbles,
)
from local_engine.weights import BLOCK, LoadedFile, stack_nibbles
from native.library import find_compiler

HEAD_SIZES: Final = (64, 128)
Kept = TypeVar("Kept", torch.Tensor, PackedMatrix)


def can_run(config: ModelConfig, block_size: int) -> bool:
    """Whether the processor, the model's shape and the cache's blocks suit the native decoder."""
    return why_not(config, block_size) is None


def why_not(config: ModelConfig, block_size: int) -> str | None:
    """What keeps the native decoder from running here, and the fix where there is one; None where it runs."""
    sides = (config.hidden_size, config.intermediate_size, config.heads * config.head_size)
    if not runnable_sets():
        return "the processor lacks AVX2"
    if config.head_size not in HEAD_SIZES or any(side % BLOCK for side in sides):
        return f"the model's heads are not 64 or 128 wide, or its layers not a multiple of {BLOCK}"
    if block_size != LANES:
        return f"--block-size is not {LANES}"
    if load_decoder() is None:
        return "there is no C++ compiler: install g++" if find_compiler() is None else "the C++ compiler failed"
    return None


class NativeDecoder:
    """Packed weights; any number of runners with caches of their own may share them."""

    def __init__(
        self,
        loaded: LoadedFile,
        weights: Literal["float32", "int8"],
        *,
        context_window: int,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.config = loaded.config
        self._loaded = loaded
        self._is_float = weights == "float32"
        # Everything that the C structures point at.
        self._kept: list[torch.Tensor | PackedMatrix] = []
        self._embedding = loaded.weights.tensor("model.embed_tokens.weight").contiguous()
        self.final_norm = loaded.weights.tensor("model.norm.weight").contiguous()
        self.layers: list[CLayer] = []
        for index in range(self.config.layers):
            self.layers.append(self._layer(f"model.layers.{index}."))
            if progress is not None:
                progress(index + 1, self.config.layers)
        head = self._pack_head()
        self.head = self._keep(head).c_matrix()
        if self._is_float and self.config.has_tied_embedding:
            # One table serves both ends: [panels, hidden, 16].
            self._embedding = head.packed
        self._cos, self._sin = rotation_tables(self.config, context_window)

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """The tokens' float32 vectors, [tokens, hidden]."""
        if self._embedding.dim() == 3:
            return self._embedding[token_ids // LANES, :, token_ids % LANES]
        return self._embedding.index_select(0, token_ids)

    def c_model(self, layers: "ctypes.Array[CLayer]") -> CModel:
        """The model over these layers, whose caches are somebody's own."""
        config = self.config
        return CModel(
            layers=ctypes.addressof(layers),
            layer_count=config.layers,
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_size=config.head_size,
            window=config.sliding_window,
            epsilon=config.norm_epsilon,
            cos=self._cos.data_ptr(),
            sin=self._sin.data_ptr(),
            threads=1,
        )

    def _layer(self, prefix: str) -> CLayer:
        has_head_norms = self.config.has_qk_norm
        attention, feed_forward = f"{prefix}self_attn.", f"{prefix}mlp."
        return CLayer(
            qkv=self._matrix(f"{attention}q_proj", f"{attention}k_proj", f"{attention}v_proj"),
            output=self._matrix(f"{attention}o_proj"),
            gate_up=self._matrix(f"{feed_forward}gate_proj", f"{feed_forward}up_proj"),
            down=self._matrix(f"{feed_forward}down_proj"),
            input_norm=self._vector(f"{prefix}input_layernorm.weight"),
            feed_forward_norm=self._vector(f"{prefix}post_attention_layernorm.weight"),
            query_norm=self._vector(f"{attention}q_norm.weight") if has_head_norms else None,
            key_norm=self._vector(f"{attention}k_norm.weight") if has_head_norms else None,
        )

    def _matrix(self, *parts: str) -> CMatrix:
        """One product for all `parts`, stacked by rows."""
        weights = self._loaded.weights
        biases = [weights.tensor(f"{part}.bias") for part in parts if f"{part}.bias" in weights]
        bias = torch.cat(biases) if biases else None
        if not self._is_float:
            stacked = stack_nibbles([self._loaded.nibbles(f"{part}.weight") for part in parts])
            if stacked is not None:
                return self._keep(pack_nibbles(stacked, bias)).c_matrix()
        weight = torch.cat([weights.tensor(f"{part}.weight") for part in parts])
        return self._keep(self._pack(weight, bias)).c_matrix()

    def _pack_head(self) -> PackedMatrix:
        is_tied = self.config.has_tied_embedding
        return self._pack(self._embedding if is_tied else self._loaded.weights.tensor("lm_head.weight"), None)

    def _pack(self, weight: torch.Tensor, bias: torch.Tensor | None) -> PackedMatrix:
        return pack_float(weight, bias) if self._is_float else pack_bytes(weight, bias)

    def _vector(self, name: str) -> int:
        return self._keep(self._loaded.weights.tensor(name).contiguous()).data_ptr()

    def _keep(self, kept: Kept) -> Kept:
        self._kept.append(kept)
        return kept
