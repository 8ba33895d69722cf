"""Runs scheduled batches through the native int8 decoder: one call into C++ for all layers of a step.

A row's logits depend on its own tokens alone, bit for bit: not on its batch, on how its prompt was cut into steps, on
what was cached, or on the number of threads.
"""

import ctypes
from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np
import torch

from local_engine.config import ModelConfig
from local_engine.layers.rotary import rotation_tables
from local_engine.model_runner import block_table_of, lazy_zeros, logit_positions, positions_of, token_ids_of
from local_engine.native.build import load_int8_decoder
from local_engine.native.packed import LANES, CLayer, CModel, CStep, PackedMatrix, pack
from local_engine.scheduler import Batch
from local_engine.weights import WeightSource

HEAD_SIZES: Final = (64, 128)
Kept = TypeVar("Kept", torch.Tensor, PackedMatrix)


def can_run(config: ModelConfig, block_size: int) -> bool:
    """Whether the processor, the model's shape and the cache's blocks suit the native decoder."""
    sides = (config.hidden_size, config.intermediate_size, config.heads * config.head_size)
    return (
        block_size == LANES
        and config.head_size in HEAD_SIZES
        and all(side % 4 == 0 for side in sides)
        and load_int8_decoder() is not None
    )


class Int8Runner:
    """Owns the packed weights and the KV cache; float32 keys lie transposed within their blocks."""

    device = torch.device("cpu")

    def __init__(
        self,
        config: ModelConfig,
        weights: WeightSource,
        *,
        blocks: int,
        context_window: int,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        library = load_int8_decoder()
        assert library is not None, "ask can_run first"
        self._library = library
        self._config = config
        self._embedding = weights.tensor("model.embed_tokens.weight").contiguous()
        self._final_norm = weights.tensor("model.norm.weight").contiguous()
        # Everything that the C structures point at.
        self._kept: list[torch.Tensor | PackedMatrix] = []
        cache = (blocks, config.kv_heads, config.head_size, LANES)
        self._layers = (CLayer * config.layers)()
        for index in range(config.layers):
            self._layers[index] = self._layer(f"model.layers.{index}.", weights, cache)
            if progress is not None:
                progress(index + 1, config.layers)
        head = self._embedding if config.has_tied_embedding else weights.tensor("lm_head.weight")
        self._head = self._keep(pack(head, None)).c_matrix()
        cos, sin = (self._keep(table) for table in rotation_tables(config, context_window))
        self._model = CModel(
            layers=ctypes.addressof(self._layers),
            layer_count=config.layers,
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_size=config.head_size,
            epsilon=config.norm_epsilon,
            cos=cos.data_ptr(),
            sin=sin.data_ptr(),
            threads=1,
        )

    @torch.inference_mode()
    def run(self, batch: Batch) -> torch.Tensor:
        """Compute every row; float32 logits, in row order, of the last drafts + 1 positions of rows that need them."""
        rows = batch.rows
        token_ids = torch.tensor(token_ids_of(rows))
        positions = positions_of(rows).astype(np.int32)
        sequences = np.repeat(np.arange(len(rows), dtype=np.int32), [row.count for row in rows])
        table = block_table_of(rows)
        states = self._embedding.index_select(0, token_ids)
        step = CStep(
            rows=len(token_ids),
            positions=positions.ctypes.data,
            sequences=sequences.ctypes.data,
            block_table=table.ctypes.data,
            table_stride=table.shape[1],
        )
        self._model.threads = torch.get_num_threads()
        self._library.breakeven_forward(ctypes.byref(self._model), ctypes.byref(step), _pointer(states))
        return self._logits(states[logit_positions(rows)])

    def _logits(self, states: torch.Tensor) -> torch.Tensor:
        logits = torch.empty(len(states), self._config.vocabulary_size)
        self._library.breakeven_project(
            ctypes.byref(self._head),
            _pointer(self._final_norm),
            ctypes.c_float(self._config.norm_epsilon),
            _pointer(states),
            _pointer(logits),
            ctypes.c_long(len(states)),
            ctypes.c_long(torch.get_num_threads()),
        )
        return logits

    def _layer(self, prefix: str, weights: WeightSource, cache: tuple[int, ...]) -> CLayer:
        config = self._config

        def matrix(*parts: str) -> PackedMatrix:
            weight = torch.cat([weights.tensor(f"{prefix}{part}.weight") for part in parts])
            biases = [weights.tensor(f"{prefix}{part}.bias") for part in parts if f"{prefix}{part}.bias" in weights]
            return self._keep(pack(weight, torch.cat(biases) if biases else None))

        def vector(name: str) -> int:
            return self._keep(weights.tensor(prefix + name).contiguous()).data_ptr()

        return CLayer(
            qkv=matrix("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj").c_matrix(),
            output=matrix("self_attn.o_proj").c_matrix(),
            gate_up=matrix("mlp.gate_proj", "mlp.up_proj").c_matrix(),
            down=matrix("mlp.down_proj").c_matrix(),
            input_norm=vector("input_layernorm.weight"),
            feed_forward_norm=vector("post_attention_layernorm.weight"),
            query_norm=vector("self_attn.q_norm.weight") if config.has_qk_norm else None,
            key_norm=vector("self_attn.k_norm.weight") if config.has_qk_norm else None,
            keys=self._keep(lazy_zeros(cache, torch.float32, self.device)).data_ptr(),
            values=self._keep(lazy_zeros(cache, torch.float32, self.device)).data_ptr(),
        )

    def _keep(self, kept: Kept) -> Kept:
        self._kept.append(kept)
        return kept


def _pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())
