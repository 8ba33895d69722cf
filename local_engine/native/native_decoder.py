"""A model's weights in the native decoder's format, and which model shapes it supports."""

import ctypes
from collections.abc import Callable
from typing import Final, Literal, TypeVar

import torch

from local_engine.config import ExpertShape, ModelConfig
from local_engine.layers.rotary import rotary_kinds, rotary_of, rotation_tables
from local_engine.loading.weights import BLOCK, LoadedFile, stack_blocks, stack_nibbles
from local_engine.model import NORM_NAMES
from local_engine.native.build import load_decoder, runnable_sets
from local_engine.native.packed import (
    LANES,
    CExpert,
    CLayer,
    CMatrix,
    CModel,
    PackedMatrix,
    pack_bytes,
    pack_float,
    pack_nibbles,
    pack_scaled,
)
from native.library import find_compiler

HEAD_SIZES: Final = (64, 128, 256)
NO_EXPERTS: Final = ExpertShape(0, 0, 0)
Kept = TypeVar("Kept", torch.Tensor, PackedMatrix)


def can_run(config: ModelConfig, block_size: int) -> bool:
    """Whether processor, model shape and cache block size suit the native decoder."""
    return why_not(config, block_size) is None


def why_not(config: ModelConfig, block_size: int) -> str | None:
    """Why the native decoder cannot run here, with a fix if there is one; None if it can."""
    experts = NO_EXPERTS if config.experts is None else config.experts
    sides = (config.hidden_size, config.intermediate_size, experts.size, config.heads * config.head_size)
    if not runnable_sets():
        return "the processor is neither x86 with AVX2 nor 64-bit ARM"
    if config.head_size not in HEAD_SIZES or any(side % BLOCK for side in sides):
        return f"the model's heads are not 64, 128 or 256 wide, or its layers not a multiple of {BLOCK}"
    if block_size != LANES:
        return f"--block-size is not {LANES}"
    if load_decoder() is None:
        return "there is no C++ compiler: install g++" if find_compiler() is None else "the C++ compiler failed"
    return None


class NativeDecoder:
    """Packed weights; may be shared by runners with their own caches."""

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
        # Everything that the C structures point to.
        self._kept: list[torch.Tensor | PackedMatrix] = []
        self._arrays: list[ctypes.Array[CExpert]] = []
        embedding = self._keep(self._exact(["model.embed_tokens.weight"], None))
        self.embedding = embedding.c_matrix()
        self.final_norm = loaded.weights.tensor("model.norm.weight").contiguous()
        self._tables = {
            kind: rotation_tables(self.config, context_window, is_local=kind == "local")
            for kind in rotary_kinds(self.config)
        }
        self.layers: list[CLayer] = []
        for index in range(self.config.layers):
            self.layers.append(self._layer(index))
            if progress is not None:
                progress(index + 1, self.config.layers)
        # In float32, one table serves as both embedding and head.
        is_shared = self._is_float and self.config.has_tied_embedding
        self.head = self.embedding if is_shared else self._keep(self._head()).c_matrix()
        del self._loaded  # otherwise its file stays open, and a deleted one would fill the disk while it is served

    def c_model(self, layers: "ctypes.Array[CLayer]") -> CModel:
        """The model with these layers, whose caches belong to the caller."""
        config = self.config
        experts = config.experts or NO_EXPERTS
        return CModel(
            layers=ctypes.addressof(layers),
            layer_count=config.layers,
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            experts=experts.count,
            experts_used=experts.used,
            expert_size=experts.size,
            shares_add_up=experts.shares_add_up,
            is_gelu=config.activation == "gelu",
            norms_all_heads=config.has_wide_qk_norm,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_size=config.head_size,
            epsilon=config.norm_epsilon,
            attention_scale=config.attention_scale,
            threads=1,
        )

    def _layer(self, index: int) -> CLayer:
        config, prefix = self.config, f"model.layers.{index}."
        has_head_norms = config.has_qk_norm
        kind = rotary_of(config, index)
        cos, sin = (None, None) if kind is None else (table.data_ptr() for table in self._tables[kind])
        attention, feed_forward = f"{prefix}self_attn.", f"{prefix}mlp."
        input_norm, attention_norm, feed_forward_norm, end_norm = (
            None if name is None else self._vector(f"{prefix}{name}.weight") for name in NORM_NAMES[config.norm_place]
        )
        layer = CLayer(
            qkv=self._matrix(f"{attention}q_proj", f"{attention}k_proj", f"{attention}v_proj"),
            output=self._matrix(f"{attention}o_proj"),
            input_norm=input_norm,
            attention_norm=attention_norm,
            feed_forward_norm=feed_forward_norm,
            end_norm=end_norm,
            query_norm=self._vector(f"{attention}q_norm.weight") if has_head_norms else None,
            key_norm=self._vector(f"{attention}k_norm.weight") if has_head_norms else None,
            cos=cos,
            sin=sin,
            window=0 if index in config.full_layers else config.sliding_window,
        )
        experts = config.experts_of(index)
        if experts is None:
            layer.gate_up, layer.down = self._feed_forward(feed_forward)
        else:
            self._add_experts(layer, feed_forward, experts)
        return layer

    def _feed_forward(self, prefix: str) -> tuple[CMatrix, CMatrix]:
        return self._matrix(f"{prefix}gate_proj", f"{prefix}up_proj"), self._matrix(f"{prefix}down_proj")

    def _add_experts(self, layer: CLayer, prefix: str, shape: ExpertShape) -> None:
        """The router is kept exact in every format: it decides which experts compute."""
        layer.router = self._keep(self._exact([f"{prefix}gate.weight"], None)).c_matrix()
        experts = (CExpert * shape.count)(
            *(CExpert(*self._feed_forward(f"{prefix}experts.{number}.")) for number in range(shape.count))
        )
        self._arrays.append(experts)
        layer.experts = ctypes.addressof(experts)

    def _matrix(self, *parts: str) -> CMatrix:
        """One product for all `parts`, stacked by rows."""
        weights = self._loaded.weights
        biases = [weights.tensor(f"{part}.bias") for part in parts if f"{part}.bias" in weights]
        names, bias = [f"{part}.weight" for part in parts], torch.cat(biases) if biases else None
        return self._keep(self._exact(names, bias) if self._is_float else self._rounded(names, bias)).c_matrix()

    def _head(self) -> PackedMatrix:
        names = ["model.embed_tokens.weight" if self.config.has_tied_embedding else "lm_head.weight"]
        return self._exact(names, None) if self._is_float else pack_bytes(self._stacked(names), None)

    def _exact(self, names: list[str], bias: torch.Tensor | None) -> PackedMatrix:
        """For products in float32, in the fewest bytes that give the same weights."""
        blocks = stack_blocks([self._loaded.blocks(name) for name in names])
        return pack_float(self._stacked(names), bias) if blocks is None else pack_scaled(blocks, bias)

    def _rounded(self, names: list[str], bias: torch.Tensor | None) -> PackedMatrix:
        """For integer products."""
        nibbles = stack_nibbles([self._loaded.nibbles(name) for name in names])
        return pack_bytes(self._stacked(names), bias) if nibbles is None else pack_nibbles(nibbles, bias)

    def _stacked(self, names: list[str]) -> torch.Tensor:
        return torch.cat([self._loaded.weights.tensor(name) for name in names])

    def _vector(self, name: str) -> int:
        return self._keep(self._loaded.weights.tensor(name).contiguous()).data_ptr()

    def _keep(self, kept: Kept) -> Kept:
        self._kept.append(kept)
        return kept
