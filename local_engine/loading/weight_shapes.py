"""Checks a file's tensors against its configuration: a product of another shape would read out of bounds, and without
a tensor that nobody reads the answers would be wrong."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import torch

from local_engine.config import ModelConfig
from local_engine.errors import ModelUnavailable, ModelUnsupported
from local_engine.loading.weights import LoadedFile, NibbleBlocks, ScaledBlocks, WeightSource

SIZES = (
    *("layers", "hidden_size", "intermediate_size", "heads", "kv_heads", "head_size"),
    *("context_window", "vocabulary_size"),
)
SCALES = ("rope_theta", "norm_epsilon", "embedding_scale", "logit_scale")
# Those for which 0 means the usual value.
OPTIONAL_SCALES = ("attention_scale", "local_rope_theta")
ROPE_SCALES = ("factor", "high_frequency_factor", "low_frequency_factor", "fast_rotations", "slow_rotations")
# Far above any model's; products of larger sizes would overflow a float.
SIZE_LIMIT = 1 << 40
# Lists as long as a head are made before any tensor is read.
MOST_HEAD_SIZE = 1 << 16
EXPERT = re.compile(r"\.experts\.(\d+|{})\.")
PRODUCTS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
# Fused matrices of layers, beside those of `_shapes`.
FUSED = ("self_attn.qkv_proj", "mlp.gate_up_proj")


class CheckedWeights:
    """A source whose tensors have the shapes that the model is built for; otherwise raises ModelUnavailable."""

    def __init__(self, weights: WeightSource, config: ModelConfig) -> None:
        self._weights = weights
        self._shapes = _shapes(config)

    def __contains__(self, name: str) -> bool:
        return name in self._weights

    def tensor(self, name: str) -> torch.Tensor:
        """The underlying source's tensor, checked."""
        tensor = self._weights.tensor(name)
        self.check(name, tuple(tensor.shape))
        return tensor

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Raises ModelUnavailable, with both shapes, if they differ."""
        part, _, kind = name.removeprefix("model.").rpartition(".")
        inner = EXPERT.sub(".experts.", part.split(".", 2)[-1])
        wanted = self._shapes.get(inner if part.startswith("layers.") else part, shape)
        if shape != (wanted[:1] if kind == "bias" else wanted):
            raise ModelUnavailable(
                f"Tensor {name} is {_text(shape)} and the model's configuration says {_text(wanted)}: the file is "
                "damaged or belongs to another configuration."
            )


def checked(loaded: LoadedFile) -> LoadedFile:
    """The same file with tensors and blocks checked."""
    weights = CheckedWeights(loaded.weights, loaded.config)

    def nibbles(name: str) -> NibbleBlocks | None:
        blocks = loaded.nibbles(name)
        if blocks is not None:
            weights.check(name, tuple(blocks.values.shape))
        return blocks

    def blocks(name: str) -> ScaledBlocks | None:
        found = loaded.blocks(name)
        if found is not None:
            weights.check(name, tuple(found.values.shape))
        return found

    return replace(loaded, weights=weights, nibbles=nibbles, blocks=blocks)


def check_names(names: Mapping[str, str], config: ModelConfig, *, file: str) -> None:
    """Raises ModelUnsupported, with the file's names, for tensors that a layer does not have here; by our names."""
    known = {*_shapes(config), *FUSED}
    layers = {str(layer) for layer in range(config.layers)}

    def is_known(name: str) -> bool:
        part, _, kind = EXPERT.sub(".experts.", name).removeprefix("model.").rpartition(".")
        layer, _, inner = part[7:].partition(".") if part.startswith("layers.") else ("0", "", part)
        # Frequencies that follow from the configuration, and scales for a cache in 8 bits.
        is_idle = inner.endswith("rotary_emb") or kind.endswith("scale")
        is_applied = kind != "bias" or (inner.endswith("_proj") and _has_siblings(name, names))
        return layer in layers and (is_idle or (inner in known and is_applied))

    if unknown := sorted(theirs for ours, theirs in names.items() if not is_known(ours)):
        raise ModelUnsupported(
            f"{file} holds {', '.join(unknown[:3])}{' and more' if unknown[3:] else ''}, which a model of its type and "
            "configuration does not have here. Without them its answers would be wrong."
        )


def _has_siblings(bias: str, names: Mapping[str, str]) -> bool:
    """Whether all matrices of the same product have a bias: they have one together."""
    stem, part = bias.removesuffix(".bias").rpartition(".")[::2]
    group = next((group for group in PRODUCTS if part in group), ())
    return all(f"{stem}.{other}.bias" in names for other in group)


def check_sizes(config: ModelConfig) -> None:
    """Raises ModelUnavailable for sizes and factors of no model."""
    sizes: dict[str, int] = {name: getattr(config, name) for name in SIZES}
    scales = {name: getattr(config, name) for name in SCALES}
    scales |= {name: getattr(config, name) or 1.0 for name in OPTIONAL_SCALES}
    if (scaling := config.rope_scaling) is not None:
        sizes |= {"original_context_window": scaling.original_context_window}
        scales |= {name: getattr(scaling, name) for name in ROPE_SCALES}
        scales |= {"attention_factor": scaling.attention_factor or 1.0}
    sizes |= {} if config.experts is None else {"expert_size": config.experts.size}
    wrong = [f"{name} {value}" for name, value in sizes.items() if not 0 < value < SIZE_LIMIT]
    wrong += [f"{name} {value}" for name, value in scales.items() if not 0 < value < math.inf]
    wrong += _wrong_divisors(config)
    wrong += [f"rope_theta {config.rope_theta}"] if config.rope_theta <= 1 else []
    wrong += [f"head_size {config.head_size}"] if config.head_size > MOST_HEAD_SIZE else []
    wrong += [f"sliding_window {config.sliding_window}"] if config.sliding_window < 0 else []
    if config.experts is not None and not 0 < config.experts.used <= config.experts.count < SIZE_LIMIT:
        wrong.append(f"{config.experts.used} of {config.experts.count} experts")
    if not wrong and (config.heads % config.kv_heads or config.head_size % 2):
        wrong = [f"{name} {sizes[name]}" for name in ("heads", "kv_heads", "head_size")]
    if wrong:
        raise ModelUnavailable(f"{config.name} has a configuration of no model ({', '.join(wrong)}): it is damaged.")


def _wrong_divisors(config: ModelConfig) -> list[str]:
    """Reports lists of divisors that do not have one per frequency, or hold none."""
    scaling, pairs = config.rope_scaling, (config.rotary_size or config.head_size) // 2
    if scaling is None or scaling.kind not in ("divisors", "longrope"):
        return []
    named = (scaling.divisors, scaling.long_divisors)[: 2 if scaling.kind == "longrope" else 1]
    wrong = [f"{len(divisors)} divisors of {pairs} frequencies" for divisors in named if len(divisors) != pairs]
    return wrong + [f"divisor {by}" for divisors in named for by in divisors if not 0 < by < math.inf][:1]


def _shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, wide = config.hidden_size, config.intermediate_size
    queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
    q_norm, k_norm = (queries, keys) if config.has_wide_qk_norm else (config.head_size, config.head_size)
    count, narrow = (0, 0) if config.experts is None else (config.experts.count, config.experts.size)
    return {
        "embed_tokens": (config.vocabulary_size, hidden),
        "lm_head": (config.vocabulary_size, hidden),
        "norm": (hidden,),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "pre_feedforward_layernorm": (hidden,),
        "post_feedforward_layernorm": (hidden,),
        "self_attn.q_norm": (q_norm,),
        "self_attn.k_norm": (k_norm,),
        "mlp.gate_proj": (wide, hidden),
        "mlp.up_proj": (wide, hidden),
        "mlp.down_proj": (hidden, wide),
        "mlp.gate": (count, hidden),
        "mlp.experts.gate_proj": (narrow, hidden),
        "mlp.experts.up_proj": (narrow, hidden),
        "mlp.experts.down_proj": (hidden, narrow),
    }


def _text(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
