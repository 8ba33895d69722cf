"""The two model shapes that are measured and one with experts, as configurations of the engine and of transformers; and
how much is measured. No weights, no device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from local_engine.config import ExpertShape, ModelConfig, WeightFormat

QWEN3_600M: Final = ModelConfig(
    name="qwen3-0.6b",
    family="qwen3",
    layers=28,
    hidden_size=1024,
    intermediate_size=3072,
    heads=16,
    kv_heads=8,
    head_size=128,
    vocabulary_size=151_936,
    context_window=4096,
    rope_theta=1_000_000.0,
    norm_epsilon=1e-6,
    has_qk_norm=True,
    has_tied_embedding=True,
)
LLAMA_8B: Final = ModelConfig(
    name="llama-3.1-8b",
    family="llama",
    layers=32,
    hidden_size=4096,
    intermediate_size=14_336,
    heads=32,
    kv_heads=8,
    head_size=128,
    vocabulary_size=128_256,
    context_window=4096,
    rope_theta=500_000.0,
    norm_epsilon=1e-5,
)
# Only its ceilings are computed and its kernels checked: both sides' weights do not fit on the device together.
QWEN3_30B_A3B: Final = ModelConfig(
    name="qwen3-30b-a3b",
    family="qwen3_moe",
    layers=48,
    hidden_size=2048,
    intermediate_size=6144,
    heads=32,
    kv_heads=4,
    head_size=128,
    vocabulary_size=151_936,
    context_window=4096,
    rope_theta=1_000_000.0,
    norm_epsilon=1e-6,
    has_qk_norm=True,
    experts=ExpertShape(count=128, used=8, size=768),
)
# The format that has bars, and in which transformers gets the same workload.
COMPARED: Final[WeightFormat] = "bfloat16"
SHAPES: Final = {shape.name: shape for shape in (QWEN3_600M, LLAMA_8B)}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: tokens of context, steps, rows per weight format, prompts, bytes, repeats of a median."""

    context: int = 1024
    decode_steps: int = 64
    batches: Mapping[WeightFormat, tuple[int, ...]] = field(
        default_factory=lambda: {"bfloat16": (1, 64, 256), "fp8": (1, 256), "int4": (1,)}
    )
    tokens_per_step: int = 8192
    prefill_prompts: int = 32
    rival_prompts: int = 256
    rival_prompt_tokens: int = 512
    rival_output_tokens: int = 128
    # The cache of transformers' continuous batching in pages of 256 tokens, three for each answer. With all free memory
    # of an H200 for it, 8 answers of an 8B model took 80 s, and 256 were not there after 50 more.
    rival_cache: Mapping[str, int] = field(default_factory=lambda: {"num_blocks": 800, "max_batch_tokens": 8192})
    logit_prompt_tokens: int = 200
    repeats: int = 10
    # Whether transformers gets the same workload, which takes longer than all of ours.
    compares: bool = True
    copy_bytes: int = 4 << 30
    product_side: int = 8192

    @property
    def most_rows(self) -> int:
        """The largest batch that is decoded."""
        return max(max(rows) for rows in self.batches.values())

    def only(self, kind: WeightFormat, *, compares: bool) -> "Sizes":
        """The same sizes for one weight format only."""
        return replace(self, batches={kind: self.batches[kind]}, compares=compares)

    def blocks(self, block_size: int) -> int:
        """KV-cache blocks that hold the largest batch, its answers, and some to spare."""
        return self.most_rows * (self.context + 2 * self.decode_steps) // block_size + 64


def in_order(shapes: Sequence[ModelConfig], sizes: Sizes) -> list[tuple[ModelConfig, Sizes]]:
    """Our figures of all models in the format that has bars, then transformers', then the rest: what is last may find
    no time.

    Models are built anew for each, which takes seconds; nothing is measured twice.
    """
    compared = [sizes.only(COMPARED, compares=compares) for compares in (False, True)]
    return [(shape, some) for some in (*compared, sizes) for shape in shapes]


# Enough to run every part once with kernels interpreted on a CPU; the figures mean nothing.
SMOKE: Final = Sizes(
    context=24,
    decode_steps=2,
    batches={"bfloat16": (1, 2), "fp8": (1,), "int4": (1,)},
    tokens_per_step=64,
    prefill_prompts=2,
    rival_prompts=2,
    rival_prompt_tokens=8,
    rival_output_tokens=2,
    rival_cache={"num_blocks": 8, "max_batch_tokens": 64},
    logit_prompt_tokens=12,
    repeats=1,
    copy_bytes=1 << 12,
    product_side=16,
)


def tiny(shape: ModelConfig) -> ModelConfig:
    """The shape's family with two small layers."""
    return replace(
        shape,
        layers=2,
        hidden_size=64,
        intermediate_size=96,
        heads=4,
        kv_heads=2,
        head_size=16,
        vocabulary_size=304,
        context_window=512,
    )


def transformers_settings(shape: ModelConfig) -> dict[str, Any]:
    """Keyword arguments of transformers' Qwen3Config or LlamaConfig."""
    return {
        "vocab_size": shape.vocabulary_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "max_position_embeddings": shape.context_window,
        "rms_norm_eps": shape.norm_epsilon,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "tie_word_embeddings": shape.has_tied_embedding,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
