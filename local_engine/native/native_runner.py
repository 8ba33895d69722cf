"""Runs scheduled batches through the native decoder: one C++ call for all layers of a step.

A row's logits depend only on its own tokens, bit for bit: not on its batch, how its prompt was divided into steps, what
was cached, or the number of threads.
"""

import ctypes

import numpy as np
import torch

from local_engine.model_runner import block_table_of, lazy_zeros, logit_positions, positions_of, token_ids_of
from local_engine.native.build import load_decoder
from local_engine.native.native_decoder import NativeDecoder
from local_engine.native.packed import LANES, CLayer, CStep
from local_engine.sampling.prompt_scores import score_prompts
from local_engine.scheduler import Batch


class NativeRunner:
    """Owns a KV cache; float32 keys are transposed within their blocks."""

    device = torch.device("cpu")

    def __init__(self, decoder: NativeDecoder, *, blocks: int, library: ctypes.CDLL | None = None) -> None:
        library = library or load_decoder()
        assert library is not None, "ask can_run first"
        self._library = library
        self._decoder = decoder
        config = decoder.config
        cache = (blocks, config.kv_heads, config.head_size, LANES)
        self._caches = [lazy_zeros(cache, torch.float32, self.device) for _ in range(2 * config.layers)]
        self._layers = (CLayer * config.layers)(*decoder.layers)
        for index, layer in enumerate(self._layers):
            layer.keys, layer.values = (kept.data_ptr() for kept in self._caches[2 * index : 2 * index + 2])
        self._model = decoder.c_model(self._layers)

    @torch.inference_mode()
    def run(self, batch: Batch) -> torch.Tensor:
        """Compute every row; returns float32 logits, in row order, of the last drafts + 1 positions of rows that need
        them.

        Requests for prompt log-probabilities receive those of the rows' positions.
        """
        rows = batch.rows
        token_ids = torch.tensor(token_ids_of(rows), dtype=torch.int64)
        positions = positions_of(rows).astype(np.int32)
        sequences = np.repeat(np.arange(len(rows), dtype=np.int32), [row.count for row in rows])
        table = block_table_of(rows)
        states = self._embedded(token_ids)
        step = CStep(
            rows=len(token_ids),
            positions=positions.ctypes.data,
            sequences=sequences.ctypes.data,
            block_table=table.ctypes.data,
            table_stride=table.shape[1],
        )
        self._model.threads = torch.get_num_threads()
        self._library.breakeven_forward(ctypes.byref(self._model), ctypes.byref(step), _pointer(states))
        score_prompts(rows, states, self._logits)
        return self._logits(states[logit_positions(rows)])

    def _embedded(self, token_ids: torch.Tensor) -> torch.Tensor:
        states = torch.empty(len(token_ids), self._decoder.config.hidden_size)
        self._library.breakeven_embed(
            ctypes.byref(self._decoder.embedding), _pointer(token_ids), _pointer(states), ctypes.c_long(len(states))
        )
        scale = self._decoder.config.embedding_scale
        return states if scale == 1.0 else states.mul_(scale)

    def _logits(self, states: torch.Tensor) -> torch.Tensor:
        config = self._decoder.config
        logits = torch.empty(len(states), config.vocabulary_size)
        self._library.breakeven_project(
            ctypes.byref(self._decoder.head),
            _pointer(self._decoder.final_norm),
            ctypes.c_float(config.norm_epsilon),
            _pointer(states),
            _pointer(logits),
            ctypes.c_long(len(states)),
            ctypes.c_long(torch.get_num_threads()),
        )
        return logits


def _pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())
