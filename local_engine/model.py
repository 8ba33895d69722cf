"""The decoder of Llama and related families, over a paged KV cache.

Knows tensors and layers; nothing of requests, tokenizers or scheduling.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch.nn import functional as F

from local_engine.attention.protocol import AttentionBackend, AttentionBatch
from local_engine.config import ExpertShape, ModelConfig, NormPlace
from local_engine.layers.feed_forward import ACTIVATIONS, Experts, FeedForward, FeedForwardPart
from local_engine.layers.linear import DenseLinear, Linear, LinearBuilder, StoredLinears
from local_engine.layers.rotary import Rotary, RotaryKind, Rotation, rotary_kinds, rotary_of, rotate
from local_engine.loading.weights import WeightSource, stack_nibbles


@dataclass(frozen=True, slots=True)
class KvCache:
    """One layer's keys and values, each [blocks, block_size, kv_heads, head_size]."""

    keys: torch.Tensor
    values: torch.Tensor


# Before attention, after it, before the feed-forward part, after it.
NORM_NAMES: Final[dict[NormPlace, tuple[str | None, ...]]] = {
    "before": ("input_layernorm", None, "post_attention_layernorm", None),
    "behind": (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    "both": (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ),
}


@dataclass(frozen=True, slots=True)
class Layer:
    """One transformer block's weights (queries, keys and values in one product) and settings."""

    input_norm: torch.Tensor | None
    attention_norm: torch.Tensor | None
    qkv: Linear
    output: Linear
    feed_forward_norm: torch.Tensor | None
    end_norm: torch.Tensor | None
    feed_forward: FeedForwardPart
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    # None if queries and keys are not rotated.
    rotary: RotaryKind | None
    has_window: bool


class DecoderModel:
    """Maps token ids and positions to hidden states; logits are computed only for requested rows."""

    def __init__(
        self,
        config: ModelConfig,
        weights: WeightSource,
        *,
        build_linear: LinearBuilder,
        attention: AttentionBackend,
        context_window: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        progress: Callable[[int, int], None] | None = None,
        stored: StoredLinears | None = None,
    ) -> None:
        self.config = config
        self.dtype = dtype
        self.device = device or torch.device("cpu")
        self._attention = attention
        load = _Loader(weights, build_linear, dtype, self.device, stored)
        self._embedding = load.tensor("model.embed_tokens.weight")
        self._layers: list[Layer] = []
        for index in range(config.layers):
            self._layers.append(self._held(_build_layer(index, config, load)))
            if progress is not None:
                progress(index + 1, config.layers)
        self._final_norm = load.tensor("model.norm.weight")
        self._head = load.head(self._embedding, config)
        self._rotaries = {
            kind: Rotary(config, context_window, self.device, is_local=kind == "local") for kind in rotary_kinds(config)
        }

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, caches: list[KvCache], batch: AttentionBatch
    ) -> torch.Tensor:
        """Hidden states after the last block, [tokens, hidden]; the caches receive the new keys and values."""
        x = self._embed(token_ids)
        rotations = {kind: rotary.at(positions) for kind, rotary in self._rotaries.items()}
        for layer, cache in zip(self._layers, caches, strict=True):
            rotation = None if layer.rotary is None else rotations[layer.rotary]
            attended = self._attend(layer, self._norm(x, layer.input_norm), rotation, cache, batch)
            x = x + self._norm(attended, layer.attention_norm)
            x = x + self._norm(layer.feed_forward(self._norm(x, layer.feed_forward_norm)), layer.end_norm)
        return x

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Final norm and output head, float32, [rows, vocabulary]."""
        return self._head(self._norm(hidden, self._final_norm)).float()

    def _held(self, layer: Layer) -> Layer:
        """The form in which the device computes a layer just read."""
        return layer

    def _embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        x = F.embedding(token_ids, self._embedding)
        return x if self.config.embedding_scale == 1.0 else x * self.config.embedding_scale

    def _attend(
        self, layer: Layer, x: torch.Tensor, rotation: Rotation | None, cache: KvCache, batch: AttentionBatch
    ) -> torch.Tensor:
        config = self.config
        rows = x.shape[0]
        heads = layer.qkv(x).view(rows, config.heads + 2 * config.kv_heads, config.head_size)
        q, k, v = heads.split((config.heads, config.kv_heads, config.kv_heads), dim=1)
        if config.has_wide_qk_norm:
            q, k = (
                self._norm(part.flatten(1), norm).view_as(part)
                for part, norm in ((q, layer.query_norm), (k, layer.key_norm))
            )
        else:
            q, k = self._norm(q, layer.query_norm), self._norm(k, layer.key_norm)
        if rotation is not None:
            q, k = rotate(q, *rotation), rotate(k, *rotation)
        self._attention.store(k, v, cache.keys, cache.values, batch)
        attended = self._attention.attend(q, cache.keys, cache.values, batch, has_window=layer.has_window)
        return layer.output(attended.reshape(rows, config.heads * config.head_size))

    def _norm(self, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        return x if weight is None else F.rms_norm(x, (x.shape[-1],), weight, self.config.norm_epsilon)


class _Loader:
    """Reads tensors in the model's type and turns matrices into linears."""

    def __init__(
        self,
        weights: WeightSource,
        build_linear: LinearBuilder,
        dtype: torch.dtype,
        device: torch.device,
        stored: StoredLinears | None,
    ) -> None:
        self._weights = weights
        self._build_linear = build_linear
        self._dtype = dtype
        self._device = device
        self._stored = stored

    def tensor(self, name: str) -> torch.Tensor:
        return self._weights.tensor(name).to(self._device, self._dtype)

    def vector(self, prefix: str, name: str | None) -> torch.Tensor | None:
        """A norm's weights, if the model has one of that name."""
        return None if name is None else self.tensor(f"{prefix}{name}.weight")

    def optional(self, name: str) -> torch.Tensor | None:
        return self.tensor(name) if name in self._weights else None

    def linear(self, prefix: str, *parts: str) -> Linear:
        """One product for all `parts`, stacked by rows."""
        biases = [self.optional(f"{prefix}{part}.bias") for part in parts]
        present = [bias for bias in biases if bias is not None]
        bias = torch.cat(present) if present else None
        if self._stored is not None:
            held = stack_nibbles([self._stored.nibbles(f"{prefix}{part}.weight") for part in parts])
            if held is not None:
                return self._stored.build(held.to(self._device), bias)
        return self._build_linear(torch.cat([self.tensor(f"{prefix}{part}.weight") for part in parts]), bias)

    def head(self, embedding: torch.Tensor, config: ModelConfig) -> Linear:
        weight = embedding if config.has_tied_embedding else self.tensor("lm_head.weight")
        return self._build_linear(weight, None)


def _build_layer(index: int, config: ModelConfig, load: _Loader) -> Layer:
    prefix = f"model.layers.{index}."
    input_norm, attention_norm, feed_forward_norm, end_norm = (
        load.vector(prefix, name) for name in NORM_NAMES[config.norm_place]
    )
    has_window, shape = index not in config.full_layers, config.experts_of(index)
    has_qk_norm = config.has_qk_norm
    return Layer(
        input_norm=input_norm,
        attention_norm=attention_norm,
        qkv=load.linear(f"{prefix}self_attn.", "q_proj", "k_proj", "v_proj"),
        output=load.linear(f"{prefix}self_attn.", "o_proj"),
        feed_forward_norm=feed_forward_norm,
        end_norm=end_norm,
        feed_forward=_feed_forward(f"{prefix}mlp.", config, load)
        if shape is None
        else _experts(f"{prefix}mlp.", config, shape, load),
        query_norm=load.vector(prefix, "self_attn.q_norm" if has_qk_norm else None),
        key_norm=load.vector(prefix, "self_attn.k_norm" if has_qk_norm else None),
        rotary=rotary_of(config, index),
        has_window=has_window,
    )


def _feed_forward(prefix: str, config: ModelConfig, load: _Loader) -> FeedForward:
    return FeedForward(
        load.linear(prefix, "gate_proj", "up_proj"), load.linear(prefix, "down_proj"), ACTIVATIONS[config.activation]
    )


def _experts(prefix: str, config: ModelConfig, shape: ExpertShape, load: _Loader) -> Experts:
    # The router's product decides which experts compute, so it is not quantised.
    return Experts(
        DenseLinear(load.tensor(f"{prefix}gate.weight"), None),
        [_feed_forward(f"{prefix}experts.{number}.", config, load) for number in range(shape.count)],
        used=shape.used,
        shares_add_up=shape.shares_add_up,
    )
