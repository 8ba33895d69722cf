"""transformers in float32 on the same dequantised tensors, through its own `generate`."""

import time
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.initialization import no_init_weights

from benchmarks.engine_cpu.sizes import SEQUENCES, Measure, Sizes, random_prompt
from local_engine.loading.weights import LoadedFile


class Transformers:
    """A Contender; concurrent requests are one batch without padding, its best case."""

    name = "transformers float32"
    measures: tuple[Measure, ...] = ("prefill", "decode", "concurrent")

    def __init__(self, loaded: LoadedFile, sizes: Sizes) -> None:
        self._sizes, self._seed = sizes, 10_000
        self._model: Any = build(loaded)

    @torch.inference_mode()
    def measure(self, what: Measure) -> float:
        sizes = self._sizes
        if what == "prefill":
            return sizes.prompt / self._generate(1, sizes.prompt, 1)
        if what == "decode":
            return (sizes.output - 1) / (self._generate(1, 64, sizes.output) - self._generate(1, 64, 1))
        return SEQUENCES * sizes.output / self._generate(SEQUENCES, sizes.prompt, sizes.output)

    def _generate(self, rows: int, prompt: int, output: int) -> float:
        self._seed += rows
        ids = torch.tensor([random_prompt(self._seed + i, prompt) for i in range(rows)])
        began = time.perf_counter()
        self._model.generate(
            ids, max_new_tokens=output, min_new_tokens=output, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        return time.perf_counter() - began


def build(loaded: LoadedFile) -> LlamaForCausalLM:
    """transformers' Llama with the file's tensors, shared rather than copied."""
    config = loaded.config
    shape = LlamaConfig(
        vocab_size=config.vocabulary_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        max_position_embeddings=config.context_window,
        rms_norm_eps=config.norm_epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        tie_word_embeddings=config.has_tied_embedding,
    )
    # Random initialisation, which the file's tensors replace, would take as long as reading the file.
    with no_init_weights():
        model = LlamaForCausalLM(shape).eval()
    names = {name: "model.embed_tokens.weight" if name == "lm_head.weight" else name for name in model.state_dict()}
    model.load_state_dict({name: loaded.weights.tensor(source) for name, source in names.items()}, assign=True)
    return model
