"""Reads a GGUF file: shape, tokenizer and dequantised float32 weights under Hugging Face's names.

llama.cpp stores the query and key rows of architecture `llama` interleaved for its own rotary layout; they are put back
here, so that the model knows one layout only.
"""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from local_engine.config import ModelConfig, RopeScaling, StoredFormat, extended_window
from local_engine.errors import ModelUnavailable, ModelUnsupported
from local_engine.loading.gguf_blocks import blocks_of, bytes_per_weight
from local_engine.loading.gguf_file import GgufFile, GgufTensor, read_gguf_shards
from local_engine.loading.gguf_nibbles import READERS, nibbles_of
from local_engine.loading.vocabulary import build_gguf_tokenizer
from local_engine.loading.weights import LoadedFile, NibbleBlocks, ScaledBlocks
from local_engine.text.tokenizer import Tokenizer

FAMILIES: Final = {"llama": "llama", "mistral": "mistral", "qwen2": "qwen2", "qwen3": "qwen3"}
INTERLEAVED_ROPE: Final = {"llama", "mistral"}
QUANTISATIONS: Final = {
    *("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "MXFP4"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0"),
}
LAYER_NAMES: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
STORED: Final[dict[str, StoredFormat]] = {"Q8_0": "int8"}
ROPE_DIVISORS: Final = "rope_freqs.weight"
# Of yarn, as factors that are 1 where it is plain; -1 is llama.cpp's word for one that is not said.
YARN_WEIGHTS: Final = ("attn_factor", "yarn_attn_factor", "yarn_ext_factor")
# What a file may hold beside the tensors above: the last is one that llama.cpp leaves out too.
OTHER_TENSORS: Final = (re.escape(ROPE_DIVISORS), r"blk\.\d+\.attn_rot_embd")
TOP_NAMES: Final = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


class GgufWeights:
    """Tensors of one GGUF file, dequantised when asked for."""

    def __init__(self, file: GgufFile, config: ModelConfig, *, is_interleaved: bool) -> None:
        self._tensors = {hugging_face_name(name): tensor for name, tensor in file.tensors.items()}
        self._config = config
        self._is_interleaved = is_interleaved

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def tensor(self, name: str) -> torch.Tensor:
        """Return one dequantised tensor; raises ModelUnsupported when it is missing or of an unknown quantisation."""
        found = self._tensors.get(name)
        if found is None:
            raise ModelUnsupported(f"The GGUF file has no tensor {name}.")
        if found.kind.name not in QUANTISATIONS:
            known = ", ".join(sorted(QUANTISATIONS))
            raise ModelUnsupported(f"Tensor {name} is {found.kind.name}; this engine reads {known}.")
        return self._in_our_order(name, torch.from_numpy(dequantise(found)))

    def nibbles(self, name: str) -> NibbleBlocks | None:
        """A matrix as the file has it, where that is in 4 bits."""
        found = self._tensors.get(name)
        blocks = None if found is None else nibbles_of(found)
        if blocks is None:
            return None
        return NibbleBlocks(*self._parts_in_our_order(name, blocks))

    def blocks(self, name: str) -> ScaledBlocks | None:
        """A matrix as the file has it, where that is in few bits."""
        found = self._tensors.get(name)
        blocks = None if found is None else blocks_of(found)
        return None if blocks is None else ScaledBlocks(*self._parts_in_our_order(name, blocks), bits=blocks.bits)

    def _parts_in_our_order(
        self, name: str, blocks: NibbleBlocks | ScaledBlocks
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return (
            self._in_our_order(name, blocks.values),
            self._in_our_order(name, blocks.scales),
            self._in_our_order(name, blocks.offsets),
        )

    def _in_our_order(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        if self._is_interleaved and name.endswith(("q_proj.weight", "q_proj.bias")):
            return undo_interleaving(tensor, self._config.heads)
        if self._is_interleaved and name.endswith(("k_proj.weight", "k_proj.bias")):
            return undo_interleaving(tensor, self._config.kv_heads)
        return tensor


def hugging_face_name(name: str) -> str:
    """Translate llama.cpp's tensor name; unknown names are kept."""
    if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name):
        layer, part, kind = match.groups()
        return f"model.layers.{layer}.{LAYER_NAMES.get(part, part)}.{kind}"
    stem, _, kind = name.rpartition(".")
    return f"{TOP_NAMES.get(stem, stem)}.{kind}"


def undo_interleaving(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """Turn llama.cpp's row order (pairs side by side) into halves side by side, per head."""
    rows = tensor.shape[0]
    if rows % (2 * heads):
        raise ModelUnavailable(f"A tensor of {rows} rows holds no {heads} heads: the file is damaged.")
    return (
        tensor.view(heads, rows // heads // 2, 2, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape).contiguous()
    )


def load_gguf(path: Path) -> LoadedFile:
    """Open a GGUF file. Raises ModelUnavailable when it is damaged, ModelUnsupported when it is of another kind."""
    file = read_gguf_shards(path)
    metadata = file.metadata
    architecture = str(metadata.get("general.architecture", "unknown"))
    if architecture not in FAMILIES:
        raise ModelUnsupported(
            f"{path.name} is of architecture {architecture}; this engine runs {', '.join(FAMILIES)}."
        )
    _check_tensors(file.tensors, architecture, path)
    try:
        config = _read_config(metadata, architecture, file.tensors, path)
        tokenizer: Tokenizer = build_gguf_tokenizer(metadata)
    except KeyError as error:
        raise ModelUnavailable(f"{path.name} lacks the metadata field {error.args[0]}.") from error
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise ModelUnavailable(f"{path.name} has damaged metadata ({error}).") from error
    weights = GgufWeights(file, config, is_interleaved=architecture in INTERLEAVED_ROPE)
    stored, held = _stored(file.tensors), _bytes_per_weight(file.tensors)
    return LoadedFile(config, weights, tokenizer, weights.nibbles, stored, weights.blocks, held)


def _check_tensors(tensors: Mapping[str, GgufTensor], architecture: str, path: Path) -> None:
    """Raise ModelUnsupported for parts that these families do not have and that would be left out."""
    has_head_norms = FAMILIES[architecture] == "qwen3"
    layer = "|".join(name for name in LAYER_NAMES if has_head_norms or not name.endswith(("q_norm", "k_norm")))
    matrices = "|".join(name for name in LAYER_NAMES if not name.endswith("norm"))
    known = re.compile(
        "|".join(
            (
                rf"blk\.\d+\.(({layer})\.weight|({matrices})\.bias)",
                rf"({'|'.join(TOP_NAMES)})\.weight",
                *OTHER_TENSORS,
            )
        )
    )
    unknown = sorted(name for name in tensors if not known.fullmatch(name))
    if unknown:
        raise ModelUnsupported(
            f"{path.name} holds {', '.join(unknown[:3])}{' and more' if unknown[3:] else ''}, which a model of "
            f"architecture {architecture} has not here; it would be computed wrongly without."
        )


def _stored(tensors: Mapping[str, GgufTensor]) -> StoredFormat | None:
    """The format of the first layer's widest matrix: files keep a few others in more bits."""
    found = tensors.get("blk.0.ffn_gate.weight")
    return None if found is None else "int4" if found.kind in READERS else STORED.get(found.kind.name)


def _bytes_per_weight(tensors: Mapping[str, GgufTensor]) -> float:
    """The mean over all matrices."""
    sizes = [(math.prod(tensor.shape), tensor.kind) for tensor in tensors.values() if len(tensor.shape) == 2]
    return sum(size * bytes_per_weight(kind) for size, kind in sizes) / max(1, sum(size for size, _ in sizes))


def dequantise(tensor: GgufTensor) -> np.ndarray:
    """A tensor's values in float32, a copy."""
    if tensor.kind == GGMLQuantizationType.F32:
        return tensor.raw.view(np.float32).reshape(tensor.shape).copy()
    values: np.ndarray = dequantize(tensor.raw, tensor.kind)
    return np.array(values, dtype=np.float32).reshape(tensor.shape)


def _read_config(
    metadata: dict[str, Any], architecture: str, tensors: Mapping[str, GgufTensor], path: Path
) -> ModelConfig:
    def value(key: str) -> Any:
        return metadata[f"{architecture}.{key}"]

    def optional(key: str, default: Any) -> Any:
        return metadata.get(f"{architecture}.{key}", default)

    heads = int(value("attention.head_count"))
    hidden = int(value("embedding_length"))
    head_size = int(optional("attention.key_length", hidden // heads))
    if int(optional("rope.dimension_count", head_size)) != head_size:
        raise ModelUnsupported("Partial rotary embeddings are not supported.")
    scaling = _rope_scaling(optional, tensors, int(value("context_length")))
    window, sliding = _windows(optional, architecture, extended_window(int(value("context_length")), scaling))
    return ModelConfig(
        name=_served_name(path),
        family=FAMILIES[architecture],  # pyright: ignore[reportArgumentType]
        layers=int(value("block_count")),
        hidden_size=hidden,
        intermediate_size=int(value("feed_forward_length")),
        heads=heads,
        kv_heads=int(optional("attention.head_count_kv", heads)),
        head_size=head_size,
        vocabulary_size=len(metadata["tokenizer.ggml.tokens"]),
        context_window=window,
        rope_theta=float(optional("rope.freq_base", 10000.0)),
        norm_epsilon=float(value("attention.layer_norm_rms_epsilon")),
        rope_scaling=scaling,
        has_qkv_bias="blk.0.attn_q.bias" in tensors,
        has_qk_norm="blk.0.attn_q_norm.weight" in tensors,
        has_tied_embedding="output.weight" not in tensors,
        sliding_window=sliding,
    )


def _windows(optional: Callable[[str, Any], Any], architecture: str, window: int) -> tuple[int, int]:
    """The context window and the sliding one, 0 for none.

    A file says which layers slide by a pattern, if at all; Mistral's all do, of Qwen's we cannot know. Within the
    window full attention is the same, so a model of mixed layers is served up to it.
    """
    sliding = int(optional("attention.sliding_window", 0) or 0)
    pattern = optional("attention.sliding_window_pattern", None)
    slides = all(pattern) if isinstance(pattern, list) else pattern is None and architecture in INTERLEAVED_ROPE
    return (window, sliding) if slides or not sliding else (min(window, sliding), 0)


def _rope_scaling(
    optional: Callable[[str, Any], Any], tensors: Mapping[str, GgufTensor], window: int
) -> RopeScaling | None:
    """Llama 3.1 and later come with a divisor for each frequency, as a tensor; others name a rule."""
    if ROPE_DIVISORS in tensors:
        return RopeScaling(kind="divisors", divisors=tuple(dequantise(tensors[ROPE_DIVISORS]).tolist()))
    factor = float(optional("rope.scaling.factor", optional("rope.scale_linear", 0.0))) or 1.0
    # A factor without a rule is linear, as older files have it.
    kind = optional("rope.scaling.type", "none" if factor == 1.0 else "linear")
    if kind in ("none", ""):
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=factor)
    if kind == "yarn" and all(abs(float(optional(f"rope.scaling.{name}", 1.0))) == 1.0 for name in YARN_WEIGHTS):
        return RopeScaling(
            kind="yarn",
            factor=factor,
            original_context_window=int(optional("rope.scaling.original_context_length", 0) or window),
            fast_rotations=float(optional("rope.scaling.yarn_beta_fast", 32.0)),
            slow_rotations=float(optional("rope.scaling.yarn_beta_slow", 1.0)),
        )
    raise ModelUnsupported(f"Rotary scaling of kind {kind} is not supported in GGUF files; linear and plain yarn are.")


def _served_name(path: Path) -> str:
    """`SmolLM2-135M-Instruct.Q4_1.gguf` is served as `smollm2-135m-instruct`."""
    whole = re.sub(r"-\d{5}-of-\d{5}$", "", path.stem.lower())
    return re.sub(r"[.-]([it]?q\d\w*|mxfp4|f16|f32|bf16)$", "", whole)
