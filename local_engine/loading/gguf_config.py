"""From a GGUF file's metadata to our configuration: the only place that knows llama.cpp's keys and tensor names."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from local_engine.config import ExpertShape, Family, ModelConfig, RopeScaling, extended_window, layer_count
from local_engine.errors import ModelUnsupported
from local_engine.loading.config_json import longrope

Divisors = Callable[[str], list[float]]
ATTENTION: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
FEED_FORWARD: Final = {
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
EXPERTS: Final = {
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate_inp": "mlp.gate",
    # `{}` stands for an expert's number.
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
GEMMA3_27B_LAYERS: Final = 62
HEAD_NORMS: Final = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
NORMS_BEHIND: Final = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
TOP_NAMES: Final = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
ROPE_DIVISORS: Final = "rope_freqs.weight"
LONGROPE_DIVISORS: Final = ("rope_factors_short.weight", "rope_factors_long.weight")
# yarn's factors, which are 1 if it is plain; -1 is llama.cpp's value for unspecified.
YARN_WEIGHTS: Final = ("attn_factor", "yarn_attn_factor", "yarn_ext_factor")


class Values:
    """One architecture's metadata, and which tensors exist; KeyError for a missing field."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str, tensors: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self._architecture = architecture
        self._tensors = tensors

    def __getitem__(self, key: str) -> Any:
        return self._metadata[f"{self._architecture}.{key}"]

    def get(self, key: str, default: Any) -> Any:
        """A field, or `default` if it is missing."""
        return self._metadata.get(f"{self._architecture}.{key}", default)

    def has(self, tensor: str) -> bool:
        """Whether the file contains a tensor of that name."""
        return tensor in self._tensors


def _plain(values: Values) -> dict[str, Any]:
    del values
    return {}


def _smollm3(values: Values) -> dict[str, Any]:
    """No field says which layers are not rotated; llama.cpp skips every fourth."""
    return {"unrotated_layers": frozenset(range(3, layer_count(values["block_count"]), 4))}


def _granite(values: Values) -> dict[str, Any]:
    """As in `config_json`; a missing multiplier, or one of 0, counts as 1."""
    if values.get("rope.scaling.finetuned", True) is False:
        raise ModelUnsupported("The GGUF file says that its Granite rotates nothing, which is not supported.")
    residual = float(values.get("residual_scale", 0.0)) or 1.0
    return {
        "embedding_scale": (float(values.get("embedding_scale", 0.0)) or 1.0) / residual,
        "norm_epsilon": float(values["attention.layer_norm_rms_epsilon"]) / residual**2,
        "attention_scale": float(values.get("attention.scale", 0.0)),
        "logit_scale": 1.0 / (float(values.get("logit_scale", 0.0)) or 1.0),
    }


def _olmo2(values: Values) -> dict[str, Any]:
    if values.get("attention.sliding_window", 0):
        raise ModelUnsupported(
            "The GGUF file is of OLMo 3, whose layers rotate by different rules; OLMo 2 is supported."
        )
    return {"norm_place": "behind", "has_wide_qk_norm": True}


def _gemma3(values: Values) -> dict[str, Any]:
    """Every sixth layer has full attention, which no field says; nor is 27B's query scaling given."""
    if values.get("final_logit_softcapping", 0.0):
        raise ModelUnsupported("The GGUF file's model caps its logits, which is not supported.")
    layers, hidden = layer_count(values["block_count"]), int(values["embedding_length"])
    by = hidden // int(values["attention.head_count"]) if layers == GEMMA3_27B_LAYERS else 0
    return {
        "norm_place": "both",
        "activation": "gelu",
        "embedding_scale": math.sqrt(hidden),
        "attention_scale": 1.0 / math.sqrt(by) if by else 0.0,
        "full_layers": frozenset(range(5, layers, 6)),
        "local_rope_theta": float(values.get("rope.freq_base_swa", 10000.0)),
    }


def _experts(values: Values) -> dict[str, Any]:
    size = values.get("expert_feed_forward_length", None) or values["feed_forward_length"]
    return {"experts": ExpertShape(int(values["expert_count"]), int(values["expert_used_count"]), int(size))}


@dataclass(frozen=True, slots=True)
class Architecture:
    """llama.cpp's tensor names for a family, and what the family varies.

    `is_interleaved`: rows of queries and keys that are rotated together are adjacent.
    """

    family: Family
    names: Mapping[str, str] = field(default_factory=lambda: ATTENTION | FEED_FORWARD)
    vary: Callable[[Values], dict[str, Any]] = _plain
    is_interleaved: bool = False
    has_longrope: bool = False


ARCHITECTURES: Final = {
    "llama": Architecture("llama", is_interleaved=True),
    "mistral": Architecture("mistral", is_interleaved=True),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3", ATTENTION | HEAD_NORMS | FEED_FORWARD),
    "smollm3": Architecture("smollm3", vary=_smollm3, is_interleaved=True),
    "phi3": Architecture(
        "phi3",
        ATTENTION | {"attn_qkv": "self_attn.qkv_proj"} | FEED_FORWARD | {"ffn_up": "mlp.gate_up_proj"},
        has_longrope=True,
    ),
    "granite": Architecture("granite", vary=_granite, is_interleaved=True),
    "olmo2": Architecture(
        "olmo2",
        ATTENTION | HEAD_NORMS | FEED_FORWARD | NORMS_BEHIND,
        vary=_olmo2,
    ),
    "gemma3": Architecture(
        "gemma3",
        ATTENTION | HEAD_NORMS | FEED_FORWARD | NORMS_BEHIND | {"ffn_norm": "pre_feedforward_layernorm"},
        vary=_gemma3,
    ),
    "qwen3moe": Architecture("qwen3_moe", ATTENTION | HEAD_NORMS | EXPERTS, vary=_experts),
}
# Mixtral files have Llama's architecture.
MIXTRAL: Final = Architecture("mixtral", ATTENTION | EXPERTS, vary=_experts, is_interleaved=True)
# Families whose windows apply to all layers, unless a pattern says otherwise.
WINDOW_EVERYWHERE: Final[tuple[Family, ...]] = ("llama", "mistral", "phi3", "mixtral")


def architecture_of(metadata: Mapping[str, Any], file: str) -> tuple[str, Architecture]:
    """The prefix of the file's fields, and the architecture; raises ModelUnsupported."""
    name = str(metadata.get("general.architecture", "unknown"))
    if name not in ARCHITECTURES:
        raise ModelUnsupported(f"{file} is of architecture {name}; this engine runs {', '.join(ARCHITECTURES)}.")
    if name == "llama" and metadata.get("llama.expert_count", 0):
        return name, MIXTRAL
    return name, ARCHITECTURES[name]


def read_config(
    values: Values, architecture: Architecture, path: Path, *, vocabulary_size: int, divisors: Divisors
) -> ModelConfig:
    """The configuration; `divisors` reads a tensor. Raises ModelUnsupported for what is not implemented."""
    heads, hidden = int(values["attention.head_count"]), int(values["embedding_length"])
    head_size = int(values.get("attention.key_length", hidden // heads))
    scaling = _rope_scaling(values, architecture, divisors)
    window, sliding = _windows(values, architecture, extended_window(int(values["context_length"]), scaling))
    config = ModelConfig(
        name=_served_name(path),
        family=architecture.family,
        layers=layer_count(values["block_count"]),
        hidden_size=hidden,
        intermediate_size=int(values["feed_forward_length"]),
        heads=heads,
        kv_heads=int(values.get("attention.head_count_kv", heads)),
        head_size=head_size,
        vocabulary_size=vocabulary_size,
        context_window=window,
        rope_theta=float(values.get("rope.freq_base", 10000.0)),
        norm_epsilon=float(values["attention.layer_norm_rms_epsilon"]),
        rope_scaling=scaling,
        has_qkv_bias=values.has("blk.0.attn_q.bias"),
        has_qk_norm=values.has("blk.0.attn_q_norm.weight"),
        has_tied_embedding=not values.has("output.weight"),
        sliding_window=sliding,
        rotary_size=_rotary_size(values, architecture, head_size),
    )
    return replace(config, **architecture.vary(values))


def _rotary_size(values: Values, architecture: Architecture, head_size: int) -> int:
    size = int(values.get("rope.dimension_count", head_size))
    if size == head_size:
        return 0
    if architecture.is_interleaved or not 0 < size < head_size or size % 2:
        raise ModelUnsupported(
            f"The GGUF file rotates {size} of the {head_size} values of a head (rope.dimension_count), which is not "
            "supported for a model of its architecture."
        )
    return size


def _windows(values: Values, architecture: Architecture, window: int) -> tuple[int, int]:
    """The context window and the sliding one, 0 for none.

    A file gives the layers with a sliding window by a pattern, if at all; in Mistral and Phi all have one, for Qwen it
    is unknown. Within the window full attention gives the same result, so a model with mixed layers is served up to it.
    """
    sliding = int(values.get("attention.sliding_window", 0) or 0)
    pattern = values.get("attention.sliding_window_pattern", None)
    if architecture.family == "gemma3":
        return window, sliding
    slides = all(pattern) if isinstance(pattern, list) else pattern is None and architecture.family in WINDOW_EVERYWHERE
    return (window, sliding) if slides or not sliding else (min(window, sliding), 0)


def _rope_scaling(values: Values, architecture: Architecture, divisors: Divisors) -> RopeScaling | None:
    """Llama 3.1 and later have a tensor with a divisor per frequency, Phi has two; others name a formula."""
    window = int(values["context_length"])
    if values.has(ROPE_DIVISORS):
        return RopeScaling(kind="divisors", divisors=tuple(divisors(ROPE_DIVISORS)))
    if architecture.has_longrope and values.has(LONGROPE_DIVISORS[0]):
        original = int(values.get("rope.scaling.original_context_length", 0) or window)
        weight = values.get("rope.scaling.attn_factor", None)
        short, long = map(divisors, LONGROPE_DIVISORS)
        return longrope(short, long, original=original, factor=window / original, weight=weight)
    factor = float(values.get("rope.scaling.factor", values.get("rope.scale_linear", 0.0))) or 1.0
    # A factor without a formula is linear, as in older files.
    kind = values.get("rope.scaling.type", "none" if factor == 1.0 else "linear")
    if kind in ("none", ""):
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=factor)
    if kind == "yarn" and all(abs(float(values.get(f"rope.scaling.{name}", 1.0))) == 1.0 for name in YARN_WEIGHTS):
        return RopeScaling(
            kind="yarn",
            factor=factor,
            original_context_window=int(values.get("rope.scaling.original_context_length", 0) or window),
            fast_rotations=float(values.get("rope.scaling.yarn_beta_fast", 32.0)),
            slow_rotations=float(values.get("rope.scaling.yarn_beta_slow", 1.0)),
        )
    raise ModelUnsupported(f"Rotary scaling of kind {kind} is not supported in GGUF files; linear and plain yarn are.")


def _served_name(path: Path) -> str:
    """`SmolLM2-135M-Instruct.Q4_1.gguf` is served as `smollm2-135m-instruct`."""
    whole = re.sub(r"-\d{5}-of-\d{5}$", "", path.stem.lower())
    return re.sub(r"[.-]([it]?q\d\w*|mxfp4|f16|f32|bf16)$", "", whole)
