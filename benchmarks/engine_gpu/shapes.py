"""The two shapes that are measured, as the engine's configuration and as transformers' own. No weights, no device."""

from typing import Any, Final

from local_engine.config import ModelConfig

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
SHAPES: Final = {shape.name: shape for shape in (QWEN3_600M, LLAMA_8B)}


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
