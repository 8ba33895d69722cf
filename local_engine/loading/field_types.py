"""The types of the fields that are read of a model's files, so that a value of another type is reported by its name.

Fields that are not listed here are not read, or may have any type. Ranges are checked in weight_shapes.py.
"""

from typing import Annotated, Any, Final, TypedDict

import msgspec

from local_engine.errors import ModelUnavailable

WholeNumber = int | None
Number = float | None
Truth = bool | None
Text = str | None
TokenId = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 32)]
Sides = str | tuple[int, int] | None


class Rope(TypedDict, total=False):
    """Rotary settings, which may be given for each kind of layers."""

    rope_type: Text
    type: Text
    rope_theta: Number
    factor: Number
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: WholeNumber
    beta_fast: Number
    beta_slow: Number
    attention_factor: Number
    partial_rotary_factor: Number
    truncate: Truth
    short_factor: list[float]
    long_factor: list[float]
    full_attention: "Rope | None"
    sliding_attention: "Rope | None"


class QuantisedMatrices(TypedDict, total=False):
    """What a group of compressed-tensors says of its matrices."""

    num_bits: WholeNumber
    block_structure: Sides


class QuantisedGroup(TypedDict, total=False):
    """One of compressed-tensors' groups."""

    weights: QuantisedMatrices | None


class Quantisation(TypedDict, total=False):
    """How a folder's matrices are quantised."""

    bits: WholeNumber
    w_bit: WholeNumber
    weight_block_size: Sides
    config_groups: dict[str, QuantisedGroup] | None


class ConfigJson(TypedDict, total=False):
    """A folder's config.json."""

    model_type: str
    text_config: "ConfigJson"
    quantization_config: Quantisation | None
    compression_config: Quantisation | None
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: WholeNumber
    head_dim: WholeNumber
    vocab_size: int
    max_position_embeddings: int
    original_max_position_embeddings: WholeNumber
    rms_norm_eps: float
    tie_word_embeddings: Truth
    rope_theta: Number
    rope_local_base_freq: Number
    rope_parameters: Rope | None
    rope_scaling: Rope | None
    partial_rotary_factor: Number
    sliding_window: WholeNumber
    sliding_window_pattern: int
    use_sliding_window: Truth
    max_window_layers: WholeNumber
    layer_types: list[str] | None
    hidden_act: Text
    hidden_activation: Text
    no_rope_layers: list[int] | None
    no_rope_layer_interval: int
    residual_multiplier: float
    embedding_multiplier: float
    attention_multiplier: float
    logits_scaling: float
    query_pre_attn_scalar: float
    num_local_experts: WholeNumber
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    decoder_sparse_step: int
    mlp_only_layers: list[int] | None
    bos_token_id: TokenId | None
    eos_token_id: TokenId | list[TokenId] | None


class NamedTemplate(TypedDict):
    """One of several chat templates."""

    name: str
    template: str


class TokenizerSettings(TypedDict, total=False):
    """A folder's tokenizer_config.json, and its special_tokens_map.json."""

    chat_template: str | list[NamedTemplate] | dict[str, str] | None
    bos_token: str | dict[str, Any] | None
    eos_token: str | dict[str, Any] | None


GGUF_SIZES: Final = (
    *("block_count", "context_length", "embedding_length", "feed_forward_length"),
    *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.sliding_window"),
    *("expert_count", "expert_used_count", "expert_feed_forward_length"),
    *("rope.dimension_count", "rope.scaling.original_context_length"),
)
GGUF_SCALES: Final = (
    *("embedding_scale", "residual_scale", "attention.scale", "logit_scale", "final_logit_softcapping"),
    *("attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.freq_base_swa", "rope.scale_linear"),
    *("rope.scaling.factor", "rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"),
    *("rope.scaling.yarn_ext_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow"),
)
GGUF_IDS: Final = ("bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id", "unknown_token_id")
# Those of an architecture are read without its name in front.
GGUF: Final = {
    **dict.fromkeys(GGUF_SIZES, int),
    **dict.fromkeys(GGUF_SCALES, float),
    "attention.sliding_window_pattern": int | list[bool],
    "rope.scaling.type": str,
    "rope.scaling.finetuned": bool,
    "tokenizer.chat_template": str,
    "tokenizer.chat_template.tool_use": str,
    **{f"tokenizer.ggml.{name}": TokenId for name in GGUF_IDS},
    "tokenizer.ggml.model": str,
    "tokenizer.ggml.pre": str,
    "tokenizer.ggml.tokens": list[str],
    "tokenizer.ggml.token_type": list[int],
    "tokenizer.ggml.scores": list[float],
    "tokenizer.ggml.merges": list[str],
    "tokenizer.ggml.add_bos_token": bool,
    "tokenizer.ggml.add_space_prefix": bool,
}


def check_types(value: Any, types: Any, file: str, field: str = "") -> None:
    """Raises ModelUnavailable, with the file and the field, for a value of another type."""
    try:
        msgspec.convert(value, types)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise ModelUnavailable(f"{file} has a value of the wrong type{field} ({error}).") from error


def check_gguf_types(metadata: dict[str, Any], architecture: str, file: str) -> None:
    """As `check_types`, for all fields of a GGUF file."""
    for name, value in metadata.items():
        check_types(value, GGUF.get(name.removeprefix(f"{architecture}."), Any), file, f" in {name}")
