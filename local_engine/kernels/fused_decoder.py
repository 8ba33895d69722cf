"""The decoder's forward pass out of fused kernels: six launches and four products a layer, none waiting for the host.

The same weights, caches and batches as `DecoderModel`, so a runner can hold either.
"""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from local_engine.attention.protocol import AttentionBatch
from local_engine.attention.triton_attention import TritonAttention
from local_engine.config import ModelConfig
from local_engine.kernels.rms_norm import add_rms_norm, rms_norm
from local_engine.kernels.rope_store import HeadNorms, rope_store
from local_engine.kernels.silu_mul import silu_mul
from local_engine.layers.linear import LinearBuilder, StoredLinears
from local_engine.layers.rotary import rotation_tables
from local_engine.model import DecoderModel, KvCache, Layer
from local_engine.weights import WeightSource


class FusedDecoder(DecoderModel):
    """DecoderModel for CUDA. `forward` returns states that are already normed, as `logits` wants them."""

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
        self._kv_scales = attention.kv_scales
        cos, sin = rotation_tables(config, context_window)
        self._cos_sin = (cos.to(self.device), sin.to(self.device))
        self._head_norms = [_head_norms(layer, config.norm_epsilon) for layer in self._layers]

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, caches: list[KvCache], batch: AttentionBatch
    ) -> torch.Tensor:
        """Normed hidden states after the last block, [tokens, hidden]; the caches receive the new keys and values.

        A slot of -1 in the batch marks a padded row: its keys go nowhere and its state means nothing.
        """
        residual = F.embedding(token_ids, self._embedding)
        epsilon = self.config.norm_epsilon
        x = rms_norm(residual, self._layers[0].input_norm, epsilon)
        following = [layer.input_norm for layer in self._layers[1:]] + [self._final_norm]
        for index, layer in enumerate(self._layers):
            attended = self._attend_fused(index, x, positions, caches[index], batch)
            x = add_rms_norm(layer.output(attended), residual, layer.feed_forward_norm, epsilon)
            x = add_rms_norm(layer.down(silu_mul(layer.gate_up(x))), residual, following[index], epsilon)
        return x

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Output head over states from `forward`, float32, [rows, vocabulary]."""
        return self.head(hidden).float()

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """The same in the model's own type, for the sampling kernel that reads it directly."""
        return self._head(hidden)

    def _attend_fused(
        self, index: int, x: torch.Tensor, positions: torch.Tensor, cache: KvCache, batch: AttentionBatch
    ) -> torch.Tensor:
        config, layer = self.config, self._layers[index]
        qkv = layer.qkv(x)
        rope_store(
            qkv,
            self._cos_sin,
            positions,
            batch.slot_mapping,
            (cache.keys, cache.values),
            q_heads=config.heads,
            norms=self._head_norms[index],
            k_scale=self._kv_scales.k,
            v_scale=self._kv_scales.v,
        )
        q = qkv.view(len(x), -1, config.head_size)[:, : config.heads]
        return self._attention.attend(q, cache.keys, cache.values, batch).view(len(x), -1)


def _head_norms(layer: Layer, epsilon: float) -> HeadNorms | None:
    if layer.query_norm is None or layer.key_norm is None:
        return None
    return HeadNorms(layer.query_norm, layer.key_norm, epsilon)
