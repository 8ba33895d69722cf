"""The decoder's forward pass from fused kernels: six launches and four products per layer, none waiting for the host.
Experts add two products for all of them, and their router's.
For a single row of dense weights, norms, activation and residual are fused into the products: seven launches per layer
in total, each of which may begin before the previous one has ended.

Weights, caches and batches are the same as for `DecoderModel`, so a runner can hold either.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from local_engine.attention.protocol import AttentionBatch
from local_engine.attention.triton_attention import TritonAttention
from local_engine.config import ModelConfig
from local_engine.kernels.experts import GroupedExperts, group_experts
from local_engine.kernels.gemv import gemv
from local_engine.kernels.linear import Fp8Linear
from local_engine.kernels.rms_norm import add_rms_norm, rms_norm
from local_engine.kernels.rope_store import HeadNorms, rope_store
from local_engine.kernels.silu_mul import silu_mul
from local_engine.layers.feed_forward import Experts, FeedForward
from local_engine.layers.linear import DenseLinear, Linear, LinearBuilder, StoredLinears
from local_engine.layers.rotary import RotaryKind, rotary_kinds, rotation_tables
from local_engine.loading.weights import WeightSource
from local_engine.model import DecoderModel, KvCache, Layer


class FusedDecoder(DecoderModel):
    """DecoderModel for CUDA. `forward` returns states that are already normed, as `logits` expects."""

    def __init__(
        self,
        config: ModelConfig,
        weights: WeightSource,
        *,
        build_linear: LinearBuilder,
        attention: TritonAttention,
        context_window: int,
        dtype: torch.dtype = torch.bfloat16,
        device: torch.device | None = None,
        progress: Callable[[int, int], None] | None = None,
        stored: StoredLinears | None = None,
    ) -> None:
        super().__init__(
            config,
            weights,
            build_linear=build_linear,
            attention=attention,
            context_window=context_window,
            dtype=dtype,
            device=device,
            progress=progress,
            stored=stored,
        )
        tables = {kind: self._on_device(kind, context_window) for kind in rotary_kinds(config)}
        # A rotation by zero for layers whose queries and keys are not rotated.
        cos, sin = tables["global"]
        still = (torch.ones_like(cos), torch.zeros_like(sin)) if config.unrotated_layers else (cos, sin)
        self._cos_sin = [still if layer.rotary is None else tables[layer.rotary] for layer in self._layers]
        self._paged_attention = attention
        # Whether steps of one row use the seven launches, and whether these overlap; decided by whoever can measure on
        # the device.
        self.fuses_one_row = False
        self.overlaps_one_row = False
        self._head_norms = [
            None if config.has_wide_qk_norm else _head_norms(layer, config.norm_epsilon) for layer in self._layers
        ]
        gated = [layer.feed_forward for layer in self._layers if isinstance(layer.feed_forward, FeedForward)]
        self._gated = gated if self._is_plain and len(gated) == config.layers else []

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, caches: list[KvCache], batch: AttentionBatch
    ) -> torch.Tensor:
        """Normed hidden states after the last block, [tokens, hidden]; the caches receive the new keys and values.

        A slot of -1 in the batch marks a padded row: its keys are not stored and its state is meaningless.
        """
        if self.fuses_one_row and len(token_ids) == 1:
            return self._forward_one(token_ids, positions, caches, batch)
        if not self._is_plain:
            return self._forward_varied(token_ids, positions, caches, batch)
        residual = self._embed(token_ids)
        epsilon = self.config.norm_epsilon
        x = rms_norm(residual, there(self._layers[0].input_norm), epsilon)
        following = [there(layer.input_norm) for layer in self._layers[1:]] + [self._final_norm]
        for index, layer in enumerate(self._layers):
            attended = self._attend_fused(index, layer.qkv(x), positions, caches[index], batch)
            x = add_rms_norm(layer.output(attended), residual, there(layer.feed_forward_norm), epsilon)
            x = add_rms_norm(_feed_forward(layer, x, batch.slot_mapping), residual, following[index], epsilon)
        return x

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Output head on states from `forward`, float32, [rows, vocabulary]."""
        return self.head(hidden).float()

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """The same in the model's own type, for the sampling kernel that reads it directly."""
        if self.fuses_one_row and len(hidden) == 1:
            return self._one_row(hidden, self._head)
        return self._head(hidden)

    @property
    def can_fuse_one_row(self) -> bool:
        """Whether all matrices are dense or e4m3, without experts: then a step of one row can use the seven
        launches."""
        if not self._gated:
            return False
        products = [p for layer in self._layers for p in (layer.qkv, layer.output)]
        products += [p for gated in self._gated for p in (gated.gate_up, gated.down)]
        return all(isinstance(product, (DenseLinear, Fp8Linear)) for product in (*products, self._head))

    def _forward_one(
        self, token_ids: torch.Tensor, positions: torch.Tensor, caches: list[KvCache], batch: AttentionBatch
    ) -> torch.Tensor:
        """`forward` for one row."""
        state = self._embed(token_ids)
        epsilon, overlaps = self.config.norm_epsilon, self.overlaps_one_row
        for index, (layer, gated) in enumerate(zip(self._layers, self._gated, strict=True)):
            qkv = self._one_row(state, layer.qkv, norm=layer.input_norm, eps=epsilon)
            attended = self._attend_fused(index, qkv, positions, caches[index], batch, overlaps=overlaps)
            state = self._one_row(attended, layer.output, residual=state)
            wide = self._one_row(state, gated.gate_up, norm=layer.feed_forward_norm, eps=epsilon, gates=True)
            state = self._one_row(wide, gated.down, residual=state)
        return rms_norm(state, self._final_norm, epsilon, overlaps=overlaps)

    def _forward_varied(
        self, token_ids: torch.Tensor, positions: torch.Tensor, caches: list[KvCache], batch: AttentionBatch
    ) -> torch.Tensor:
        """`forward` for families whose norms or activation differ; needs more launches."""
        x = self._embed(token_ids)
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv(self._norm(x, layer.input_norm))
            attended = layer.output(self._attend_fused(index, qkv, positions, caches[index], batch))
            x = x + self._norm(attended, layer.attention_norm)
            x = x + self._norm(layer.feed_forward(self._norm(x, layer.feed_forward_norm)), layer.end_norm)
        return self._norm(x, self._final_norm)

    @property
    def _is_plain(self) -> bool:
        """Whether norms and activation are those of the fused kernels."""
        config = self.config
        is_elsewhere = config.norm_place != "before" or config.has_wide_qk_norm
        return not is_elsewhere and config.activation == "silu"

    def _held(self, layer: Layer) -> Layer:
        if not isinstance(layer.feed_forward, Experts):
            return layer
        assert self._is_plain, "no family has experts and another gate or other norms"
        return replace(layer, feed_forward=group_experts(layer.feed_forward))

    def _on_device(self, kind: RotaryKind, context_window: int) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = rotation_tables(self.config, context_window, is_local=kind == "local")
        return cos.to(self.device), sin.to(self.device)

    def _attend_fused(
        self,
        index: int,
        qkv: torch.Tensor,
        positions: torch.Tensor,
        cache: KvCache,
        batch: AttentionBatch,
        *,
        overlaps: bool = False,
    ) -> torch.Tensor:
        config = self.config
        if config.has_wide_qk_norm:
            qkv = self._norm_wide(self._layers[index], qkv)
        rope_store(
            qkv,
            self._cos_sin[index],
            positions,
            batch.slot_mapping,
            (cache.keys, cache.values),
            q_heads=config.heads,
            norms=self._head_norms[index],
            overlaps=overlaps,
        )
        rows = len(qkv)
        q = qkv.view(rows, -1, config.head_size)[:, : config.heads]
        attended = self._paged_attention.attend(
            q, cache.keys, cache.values, batch, overlaps=overlaps, has_window=self._layers[index].has_window
        )
        return attended.view(rows, -1)

    def _norm_wide(self, layer: Layer, qkv: torch.Tensor) -> torch.Tensor:
        config = self.config
        sizes = [heads * config.head_size for heads in (config.heads, config.kv_heads, config.kv_heads)]
        q, k, v = qkv.split(sizes, dim=1)
        return torch.cat((self._norm(q, layer.query_norm), self._norm(k, layer.key_norm), v), dim=1)

    def _one_row(self, x: torch.Tensor, linear: Linear, **fused: Any) -> torch.Tensor:
        overlaps = self.overlaps_one_row
        if isinstance(linear, Fp8Linear):
            weight = linear.weight
            return gemv(x, weight.values, linear.bias, scales=weight.scales, overlaps=overlaps, **fused)
        assert isinstance(linear, DenseLinear), "ask can_fuse_one_row first"
        return gemv(x, linear.weight, linear.bias, overlaps=overlaps, **fused)


def there(weight: torch.Tensor | None) -> torch.Tensor:
    """A norm that a plain model always has."""
    assert weight is not None, "ask norm_place first"
    return weight


def _feed_forward(layer: Layer, x: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """The feed-forward part of a plain model."""
    part = layer.feed_forward
    if isinstance(part, GroupedExperts):
        return part(x, slots)
    assert isinstance(part, FeedForward), "experts are held together"
    return part.down(silu_mul(part.gate_up(x)))


def _head_norms(layer: Layer, epsilon: float) -> HeadNorms | None:
    if layer.query_norm is None or layer.key_norm is None:
        return None
    return HeadNorms(layer.query_norm, layer.key_norm, epsilon)
