"""From a folder's config.json to our configuration: the only place that knows Hugging Face's keys. Pure."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from local_engine.config import Activation, ExpertShape, Family, ModelConfig, RopeScaling, extended_window, layer_count
from local_engine.errors import ModelUnsupported
from local_engine.loading.arranged_weights import Change

FULL, SLIDING = "full_attention", "sliding_attention"
ACTIVATIONS: Final[dict[str, Activation]] = {
    "silu": "silu",
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_new": "gelu",
}
# Frequencies that change only beyond the window: within it they are the plain ones.
PLAIN_ROPE: Final = ("default", "dynamic")
# Names for longrope in Phi's files, including early ones.
LONGROPE: Final = ("longrope", "su", "yarn")
Raw = dict[str, Any]


def check_family(raw: Raw, folder: str) -> None:
    """Raises ModelUnsupported for a model of another type, whose fields may be of other types too."""
    kind = str(raw["model_type"])
    if kind not in (*FAMILIES, "gemma3"):
        raise ModelUnsupported(f"{folder} is of type {kind}; this engine runs {', '.join(FAMILIES)}.")


def text_part(raw: Raw) -> Raw:
    """The text part of a model that also reads images; omitted fields have transformers' defaults."""
    if raw.get("model_type") == "gemma3":
        kept = {key: raw[key] for key in ("eos_token_id", "bos_token_id") if key in raw}
        raw = kept | raw["text_config"] | {"model_type": "gemma3_text"}
    raw = DEFAULTS.get(str(raw.get("model_type")), {}) | raw
    if raw.get("model_type") == "gemma3_text" and not raw.get("layer_types"):
        every = int(raw.get("sliding_window_pattern", 6))
        kinds = [SLIDING if (layer + 1) % every else FULL for layer in range(layer_count(raw["num_hidden_layers"]))]
        raw = raw | {"layer_types": kinds}
    return raw


def change_of(raw: Raw) -> Change:
    """How files of this kind store their weights differently."""
    return Change(adds_one_to_norms=raw["model_type"] == "gemma3_text")


def read_config(raw: Raw, name: str, *, folder: str, has: Callable[[str], bool]) -> ModelConfig:
    """The configuration; `has` says which tensors exist. Raises ModelUnsupported for what is not implemented."""
    if uncomputed := [words for key, words in UNCOMPUTED.items() if raw.get(key)]:
        raise ModelUnsupported(f"{folder} {' and '.join(uncomputed)}, which is not supported.")
    family, vary = FAMILIES[raw["model_type"]]
    rope = _rope_of(raw, family, folder)
    heads = int(raw["num_attention_heads"])
    head_size = int(raw.get("head_dim") or raw["hidden_size"] // heads)
    scaling = _rope_scaling(rope, raw, family)
    window = extended_window(int(raw["max_position_embeddings"]), scaling)
    sliding, is_everywhere = _sliding_window(raw, family, folder)
    if sliding and not is_everywhere and family not in MIXED:
        # Within the window full attention gives the same result, so a model with mixed layers is served up to it.
        window, sliding = min(window, sliding), 0
    ties = raw.get("tie_word_embeddings")
    config = ModelConfig(
        name=name,
        family=family,
        layers=layer_count(raw["num_hidden_layers"]),
        hidden_size=int(raw["hidden_size"]),
        intermediate_size=int(raw["intermediate_size"]),
        heads=heads,
        kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_size=head_size,
        vocabulary_size=int(raw["vocab_size"]),
        context_window=window,
        rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10000.0),
        norm_epsilon=float(raw["rms_norm_eps"]),
        rope_scaling=scaling,
        has_qk_norm=has("model.layers.0.self_attn.q_norm.weight"),
        has_tied_embedding=not has("lm_head.weight") if ties is None else bool(ties),
        sliding_window=sliding,
        rotary_size=_rotary_size(raw, rope, family, head_size, folder),
        activation=_activation(raw, family, folder),
    )
    return replace(config, **vary(raw))


def _plain(raw: Raw) -> Raw:
    del raw
    return {}


def _smollm3(raw: Raw) -> Raw:
    layers = range(layer_count(raw["num_hidden_layers"]))
    every = int(raw.get("no_rope_layer_interval", 4))
    rotates = raw.get("no_rope_layers") or [(layer + 1) % every for layer in layers]
    pairs = zip(layers, rotates, strict=True)
    return {"unrotated_layers": frozenset(layer for layer, is_rotated in pairs if not is_rotated)}


def _granite(raw: Raw) -> Raw:
    """Residual sums are kept divided by the residual multiplier, which norms cancel, so that sums need not be
    multiplied."""
    residual = float(raw.get("residual_multiplier", 1.0))
    return {
        "embedding_scale": float(raw.get("embedding_multiplier", 1.0)) / residual,
        "norm_epsilon": float(raw["rms_norm_eps"]) / residual**2,
        "attention_scale": float(raw.get("attention_multiplier", 1.0)),
        "logit_scale": 1.0 / float(raw.get("logits_scaling", 1.0)),
    }


def _olmo2(raw: Raw) -> Raw:
    del raw
    return {"norm_place": "behind", "has_wide_qk_norm": True}


def _gemma3(raw: Raw) -> Raw:
    kinds = raw["layer_types"]
    ropes = raw.get("rope_parameters") or {}
    local = ropes.get(SLIDING) or {}
    if local.get("rope_type", "default") != "default":
        raise ModelUnsupported(f"Rotary scaling of kind {local['rope_type']} in layers with a window is not supported.")
    return {
        "norm_place": "both",
        "embedding_scale": math.sqrt(raw["hidden_size"]),
        "attention_scale": 1.0 / math.sqrt(raw["query_pre_attn_scalar"]),
        "full_layers": frozenset(layer for layer, kind in enumerate(kinds) if kind == FULL),
        "local_rope_theta": float(local.get("rope_theta") or raw.get("rope_local_base_freq") or 10000.0),
    }


def _mixtral(raw: Raw) -> Raw:
    count, used = int(raw["num_local_experts"]), int(raw["num_experts_per_tok"])
    return {"experts": ExpertShape(count, used, int(raw["intermediate_size"]))}


def _qwen3_moe(raw: Raw) -> Raw:
    every, dense = int(raw.get("decoder_sparse_step", 1)), raw.get("mlp_only_layers") or ()
    layers = range(layer_count(raw["num_hidden_layers"]))
    shape = ExpertShape(
        int(raw.get("num_local_experts") or raw["num_experts"]),
        int(raw["num_experts_per_tok"]),
        int(raw["moe_intermediate_size"]),
        shares_add_up=bool(raw.get("norm_topk_prob")),
        dense_layers=frozenset(layer for layer in layers if layer in dense or (layer + 1) % every),
    )
    return {"experts": shape if shape.count and len(shape.dense_layers) < len(layers) else None}


FAMILIES: Final[dict[str, tuple[Family, Callable[[Raw], Raw]]]] = {
    "llama": ("llama", _plain),
    "mistral": ("mistral", _plain),
    "qwen2": ("qwen2", _plain),
    "qwen3": ("qwen3", _plain),
    "smollm3": ("smollm3", _smollm3),
    "phi3": ("phi3", _plain),
    "granite": ("granite", _granite),
    "olmo2": ("olmo2", _olmo2),
    "gemma3_text": ("gemma3", _gemma3),
    "mixtral": ("mixtral", _mixtral),
    "qwen3_moe": ("qwen3_moe", _qwen3_moe),
}
# transformers' defaults for missing fields.
DEFAULTS: Final[dict[str, Raw]] = {
    "gemma3_text": {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
    },
    "mixtral": {"rope_theta": 1000000.0},
    "smollm3": {"rope_theta": 2000000.0},
}
# Features of models that are not implemented, and words for them.
UNCOMPUTED: Final = {
    "attn_logit_softcapping": "caps its attention's logits",
    "final_logit_softcapping": "caps its logits",
    "use_bidirectional_attention": "attends to what comes later",
    "clip_qkv": "clips its queries and keys",
}
# Families whose layers with and without a window are each computed in their own way.
MIXED: Final[tuple[Family, ...]] = ("gemma3",)
GELU: Final[tuple[Family, ...]] = ("gemma3",)
PARTLY_ROTATED: Final[tuple[Family, ...]] = ("phi3",)
LONG_ROPED: Final[tuple[Family, ...]] = ("phi3",)


def _rope_of(raw: Raw, family: Family, folder: str) -> Raw:
    """The rotary settings; in a family whose kinds of layers each have their own, those of layers with full attention.

    The older field counts, since models' pages say to add it for longer texts, whatever the file has already.
    """
    named, added = raw.get("rope_parameters") or {}, raw.get("rope_scaling") or {}
    if family in MIXED:
        return (named.get(FULL) or {}) | added  # as in transformers, settings that name no kind count for none
    rope: Raw = added or named
    if rope.get(FULL) or rope.get(SLIDING):
        raise ModelUnsupported(f"{folder} rotates by the kind of layer, which is not supported in a model of its type.")
    return rope


def _activation(raw: Raw, family: Family, folder: str) -> Activation:
    named = raw.get("hidden_activation") or raw.get("hidden_act") or "silu"
    found, wanted = ACTIVATIONS.get(named), "gelu" if family in GELU else "silu"
    if found is None or found != wanted:
        raise ModelUnsupported(
            f"{folder} computes {named} between its matrices; only {wanted} is run here in a model of this family."
        )
    return found


def _rotary_size(raw: Raw, rope: Raw, family: Family, head_size: int, folder: str) -> int:
    share = float(rope.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0)
    if share == 1.0:
        return 0
    size = int(head_size * share)
    if family not in PARTLY_ROTATED or not 0 < size < head_size or size % 2:
        raise ModelUnsupported(f"{folder} rotates a part of each head only, which is not supported.")
    return size


def _sliding_window(raw: Raw, family: Family, folder: str) -> tuple[int, bool]:
    """The window of the layers that have one, 0 if none does, and whether all do; as in transformers."""
    layers, is_everywhere = layer_count(raw["num_hidden_layers"]), family in ("mistral", "phi3", "mixtral")
    asks = family in ("qwen2", "qwen3", "qwen3_moe", "smollm3") and bool(raw.get("use_sliding_window"))
    has_window = is_everywhere or asks or family in MIXED
    default = 0 if family in ("phi3", "mixtral") else 4096
    window = int(raw.get("sliding_window", default) or 0) if has_window else 0
    # Qwen's first layers have none, nor do SmolLM3's that are rotated.
    first = 1 if family == "smollm3" else raw.get("max_window_layers")
    full = 0 if is_everywhere else min(layers, 28 if first is None else int(first))
    kinds = raw.get("layer_types") or [FULL] * full + [SLIDING] * (layers - full)
    if unknown := set(kinds) - {FULL, SLIDING}:
        raise ModelUnsupported(f"{folder} has layers of {', '.join(sorted(unknown))}, which are not supported.")
    # Whatever their layer_types say; Mistral's make it a Ministral.
    if family in ("phi3", "mixtral", "qwen3_moe"):
        return window, True
    return (window, FULL not in kinds) if SLIDING in kinds else (0, True)


def _rope_scaling(rope: Raw, raw: Raw, family: Family) -> RopeScaling | None:
    kind, window = rope.get("rope_type") or rope.get("type") or "default", int(raw["max_position_embeddings"])
    named = [part.get("original_max_position_embeddings") for part in (raw, rope)]
    original = int(named[0] or named[1] or window)
    if kind in PLAIN_ROPE:
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=float(rope["factor"]))
    if kind == "llama3":
        return RopeScaling(
            kind="llama3",
            factor=float(rope["factor"]),
            low_frequency_factor=float(rope["low_freq_factor"]),
            high_frequency_factor=float(rope["high_freq_factor"]),
            original_context_window=original,
        )
    if family in LONG_ROPED and kind in LONGROPE:
        return longrope(
            rope["short_factor"],
            rope["long_factor"],
            original=original,
            factor=float(rope.get("factor") or window / original),
            weight=rope.get("attention_factor"),
        )
    if kind == "yarn" and not rope.keys() & {"mscale", "mscale_all_dim"} and rope.get("truncate", True):
        weight = rope.get("attention_factor")
        return RopeScaling(
            kind="yarn",
            factor=float(rope["factor"]),
            original_context_window=original,
            fast_rotations=float(rope.get("beta_fast") or 32.0),
            slow_rotations=float(rope.get("beta_slow") or 1.0),
            attention_factor=None if weight is None else float(weight),
        )
    raise ModelUnsupported(
        f"Rotary scaling of kind {kind} with {', '.join(sorted(rope))} is not supported; "
        "linear, dynamic, llama3, plain yarn and Phi's longrope are."
    )


def longrope(
    short: list[float], long: list[float], *, original: int, factor: float, weight: float | None
) -> RopeScaling:
    """Divisors within the original window and beyond it; attention is scaled by `weight`, or by longrope's formula."""
    rule = math.sqrt(1 + math.log(max(1.0, factor)) / math.log(original))
    return RopeScaling(
        kind="longrope",
        factor=factor,
        original_context_window=original,
        attention_factor=rule if weight is None else float(weight),
        divisors=tuple(map(float, short)),
        long_divisors=tuple(map(float, long)),
    )
