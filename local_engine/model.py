"""The decoder of the Llama, Mistral, Qwen2, Qwen3 and SmolLM families, over a paged KV cache.

Knows tensors and layers; nothing of requests, tokenizers or scheduling.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from local_engine.attention.protocol import AttentionBackend, AttentionBatch
from local_engine.config import ModelConfig
from local_engine.layers.linear import Linear, LinearBuilder, StoredLinears
from local_engine.layers.rotary import Rotary, rotate
from local_engine.loading.weights import WeightSource, stack_nibbles


@dataclass(frozen=True, slots=True)
class KvCache:
    """One layer's keys and values, each [blocks, block_size, kv_heads, head_size]."""

    keys: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True, slots=True)
class Layer:
    """One transformer block's weights; queries, keys and values are one product, gate and up another."""

    input_norm: torch.Tensor
    qkv: Linear
    output: Linear
    feed_forward_norm: torch.Tensor
    gate_up: Linear
    down: Linear
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None


class DecoderModel:
    """Token ids and positions in, hidden states out; logits only for the rows that ask."""

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
            self._layers.append(_build_layer(f"model.layers.{index}.", config, load))
            if progress is not None:
                progress(index + 1, config.layers)
        self._final_norm = load.tensor("model.norm.weight")
        self._head = load.head(self._embedding, config)
        self._rotary = Rotary(config, context_window, self.device)

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, caches: list[KvCache], batch: AttentionBatch
    ) -> torch.Tensor:
        """Hidden states after the last block, [tokens, hidden]; the caches receive the new keys and values."""
        x = F.embedding(token_ids, self._embedding)
        cos, sin = self._rotary.at(positions)
        for layer, cache in zip(self._layers, caches, strict=True):
            x = x + self._attend(layer, self._norm(x, layer.input_norm), cos, sin, cache, batch)
            gate, up = layer.gate_up(self._norm(x, layer.feed_forward_norm)).chunk(2, dim=-1)
            x = x + layer.down(F.silu(gate) * up)
        return x

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Final norm and output head, float32, [rows, vocabulary]."""
        return self._head(self._norm(hidden, self._final_norm)).float()

    def _attend(
        self,
        layer: Layer,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        cache: KvCache,
        batch: AttentionBatch,
    ) -> torch.Tensor:
        config = self.config
        rows = x.shape[0]
        heads = layer.qkv(x).view(rows, config.heads + 2 * config.kv_heads, config.head_size)
        q, k, v = heads.split((config.heads, config.kv_heads, config.kv_heads), dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            q, k = self._norm(q, layer.query_norm), self._norm(k, layer.key_norm)
        self._attention.store(rotate(k, cos, sin), v, cache.keys, cache.values, batch)
        attended = self._attention.attend(rotate(q, cos, sin), cache.keys, cache.values, batch)
        return layer.output(attended.reshape(rows, config.heads * config.head_size))

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.config.norm_epsilon)


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


def _build_layer(prefix: str, config: ModelConfig, load: _Loader) -> Layer:
    return Layer(
        input_norm=load.tensor(f"{prefix}input_layernorm.weight"),
        qkv=load.linear(f"{prefix}self_attn.", "q_proj", "k_proj", "v_proj"),
        output=load.linear(f"{prefix}self_attn.", "o_proj"),
        feed_forward_norm=load.tensor(f"{prefix}post_attention_layernorm.weight"),
        gate_up=load.linear(f"{prefix}mlp.", "gate_proj", "up_proj"),
        down=load.linear(f"{prefix}mlp.", "down_proj"),
        query_norm=load.tensor(f"{prefix}self_attn.q_norm.weight") if config.has_qk_norm else None,
        key_norm=load.tensor(f"{prefix}self_attn.k_norm.weight") if config.has_qk_norm else None,
    )
