"""Tiny random models on disk, made by transformers (safetensors) or by gguf's writer, with a byte-level tokenizer."""

import json
from pathlib import Path
from typing import Any, TypeAlias

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, decoders, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import BPE

from local_engine.text.tokenizer import byte_alphabet

# transformers is imported where it is used: that takes as long as importing torch, and only these tests need it. Its
# types are not read (see typings).
PreTrainedModel: TypeAlias = Any
SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 260,
    "max_position_embeddings": 256,
    "bos_token_id": 256,
    "eos_token_id": 257,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_ROPE: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
EARLY_YARN_ROPE = YARN_ROPE | {"beta_fast": 6.0, "beta_slow": 2.0}
LONGROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0 + 0.1 * pair for pair in range(6)],
    "long_factor": [1.5 + 0.7 * pair for pair in range(6)],
    "partial_rotary_factor": 0.75,
}
GEMMA3_ROPE: dict[str, Any] = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
ALPHABET = sorted(byte_alphabet(), key=byte_alphabet().__getitem__)


def make_model(family: str, head_dim: int = 32) -> PreTrainedModel:
    """A random model of the family, float32, weights large enough that greedy choices are clear.

    The head size of Llama and Qwen2 follows from their shape.
    """
    from transformers import (
        Gemma3ForCausalLM,
        Gemma3TextConfig,
        GraniteConfig,
        GraniteForCausalLM,
        LlamaConfig,
        LlamaForCausalLM,
        MistralConfig,
        MistralForCausalLM,
        MixtralConfig,
        MixtralForCausalLM,
        Olmo2Config,
        Olmo2ForCausalLM,
        Phi3Config,
        Phi3ForCausalLM,
        Qwen2Config,
        Qwen2ForCausalLM,
        Qwen3Config,
        Qwen3ForCausalLM,
        Qwen3MoeConfig,
        Qwen3MoeForCausalLM,
        SmolLM3Config,
        SmolLM3ForCausalLM,
    )

    torch.manual_seed(3)
    model: PreTrainedModel
    if family == "llama":
        model = LlamaForCausalLM(LlamaConfig(**SHAPE))
    elif family == "llama3-rope":
        model = LlamaForCausalLM(LlamaConfig(**SHAPE, rope_parameters=LLAMA3_ROPE, tie_word_embeddings=True))
    elif family == "yarn-rope":
        model = Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=head_dim, rope_parameters=YARN_ROPE))
    elif family == "early-yarn-rope":
        model = Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=head_dim, rope_parameters=EARLY_YARN_ROPE))
    elif family == "llama-biases":
        model = LlamaForCausalLM(LlamaConfig(**SHAPE, head_dim=head_dim, attention_bias=True, mlp_bias=True))
    elif family == "linear-rope":
        linear = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
        model = LlamaForCausalLM(LlamaConfig(**SHAPE, head_dim=head_dim, rope_parameters=linear))
    elif family == "mistral":
        model = MistralForCausalLM(MistralConfig(**SHAPE, head_dim=head_dim, sliding_window=None))
    elif family == "mistral-window":
        model = MistralForCausalLM(MistralConfig(**SHAPE, head_dim=head_dim, sliding_window=11))
    elif family == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**SHAPE, tie_word_embeddings=True))
    elif family == "smollm3":
        model = SmolLM3ForCausalLM(SmolLM3Config(**SHAPE | {"num_hidden_layers": 4}, pad_token_id=0))
    elif family == "phi3":
        model = Phi3ForCausalLM(Phi3Config(**SHAPE, sliding_window=21, pad_token_id=0))
    elif family == "phi3-wide":
        shape = SHAPE | {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1}
        model = Phi3ForCausalLM(Phi3Config(**shape, partial_rotary_factor=0.75, pad_token_id=0))
    elif family in ("phi3-short", "phi3-long"):
        # Longer or shorter than the tests' prompts: transformers uses one list of divisors or the other.
        original = 128 if family == "phi3-short" else 32
        model = Phi3ForCausalLM(
            Phi3Config(
                **SHAPE,
                rope_parameters=LONGROPE | {"factor": 256 / original},
                original_max_position_embeddings=original,
                pad_token_id=0,
            )
        )
    elif family == "granite":
        multipliers = {"embedding_multiplier": 3.0, "residual_multiplier": 0.22, "attention_multiplier": 0.4}
        model = GraniteForCausalLM(
            GraniteConfig(**SHAPE, **multipliers, logits_scaling=6.0, attention_bias=True, tie_word_embeddings=True)
        )
    elif family == "olmo2":
        model = Olmo2ForCausalLM(Olmo2Config(**SHAPE))
    elif family in ("gemma3", "gemma3-scaled"):
        # Queries are scaled by the head size in all of Gemma's files but the largest.
        scalar = head_dim if family == "gemma3" else head_dim + 8
        model = Gemma3ForCausalLM(
            Gemma3TextConfig(
                **SHAPE | {"num_hidden_layers": 6},
                head_dim=head_dim,
                query_pre_attn_scalar=scalar,
                sliding_window=11,
                rope_parameters=GEMMA3_ROPE,
            )
        )
    elif family == "mixtral":
        model = MixtralForCausalLM(
            MixtralConfig(**SHAPE, head_dim=head_dim, num_local_experts=4, num_experts_per_tok=2)
        )
    elif family in ("qwen3-moe", "qwen3-moe-mixed"):
        # No GGUF file can say which layers are dense, or that shares need not add up to one.
        mixed = {"mlp_only_layers": [0]} if family == "qwen3-moe-mixed" else {"norm_topk_prob": True}
        experts = {"num_local_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 32}
        model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**SHAPE, head_dim=head_dim, **experts, **mixed))
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=head_dim))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2 if parameter.dim() > 1 else 0.4)
    return model.eval()


def byte_level() -> FastTokenizer:
    """A token per byte, and two special ones."""
    fast = FastTokenizer(BPE(vocab={character: i for i, character in enumerate(ALPHABET)}, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    return fast


def write_folder(model: PreTrainedModel, folder: Path, *, shard: str = "1GB") -> Path:
    """Saves a model like Hugging Face does, with a tokenizer."""
    model.save_pretrained(folder, max_shard_size=shard)
    byte_level().save(str(folder / "tokenizer.json"))
    # The template supports tools; otherwise they would be put into a message longer than the window.
    template = "{% for m in messages %}{{ m['role'] + ':' + m['content'] }}{% endfor %}{% if tools %}{% endif %}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return folder


INTERLEAVED = ("llama", "smollm3", "granite")
GGUF_NAMES = {
    "mlp.experts.gate_proj": "ffn_gate_exps.weight",
    "mlp.experts.up_proj": "ffn_up_exps.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.gate.": "ffn_gate_inp.",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str, architecture: str) -> str:
    """llama.cpp's name of a Hugging Face tensor."""
    if architecture in ("olmo2", "gemma3"):
        name = name.replace("post_attention_layernorm", "post_attention_norm")
    for theirs, ours in {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}.items():
        name = name.replace(theirs, ours)
    for theirs, ours in GGUF_NAMES.items():
        name = name.replace(theirs, ours)
    return name.replace("model.layers.", "blk.")


def interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's row order for q and k of architecture llama: row i of a half goes to 2i or 2i + 1."""
    rows = weight.shape[0] // heads
    order = [head * rows + half * rows // 2 + i for head in range(heads) for i in range(rows // 2) for half in (0, 1)]
    return weight[order]


def _parted(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Separate stacks of gates and of up projections, which transformers stores as one."""
    parted: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            names = (name.replace("gate_up", "gate"), name.replace("gate_up", "up"))
            parted |= dict(zip(names, (part.contiguous() for part in tensor.chunk(2, dim=1)), strict=True))
        else:
            parted[name] = tensor
    return parted


def write_gguf(
    model: PreTrainedModel,
    path: Path,
    architecture: str,
    kind: gguf.GGMLQuantizationType,
    *,
    sliding_window: int | None = None,
    sliding_pattern: list[bool] | None = None,
    extra: dict[str, float] | None = None,
    added: dict[str, np.ndarray] | None = None,
    tensors_a_file: int = 0,
) -> Path:
    """Writes a model like llama.cpp's converter, its matrices quantised to `kind`, in several files if a maximum number
    of tensors per file is given; `added` are additional tensors."""
    config = model.config
    rope = config.rope_parameters.get("full_attention") or config.rope_parameters
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=tensors_a_file)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(rope["rope_theta"])
    if architecture == "llama" and getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
    if sliding_window is not None:
        writer.add_sliding_window(sliding_window)
    if sliding_pattern is not None:
        writer.add_sliding_window_pattern(sliding_pattern)
    if architecture == "phi3":
        writer.add_rope_dimension_count(
            int(rope["partial_rotary_factor"] * config.hidden_size // config.num_attention_heads)
        )
        writer.add_sliding_window(config.sliding_window or 0)
    if architecture == "gemma3":
        writer.add_key_length(config.head_dim)
        writer.add_sliding_window(config.sliding_window)
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if hasattr(config, "num_local_experts"):
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if architecture == "qwen3moe":
        writer.add_key_length(config.head_dim)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if architecture == "granite":
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if rope["rope_type"] == "longrope":
        original = config.original_max_position_embeddings
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors((1 + np.log(256 / original) / np.log(original)) ** 0.5)
        for length in ("short", "long"):
            divisors = np.array(rope[f"{length}_factor"], dtype=np.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", divisors)
    if rope["rope_type"] == "llama3":
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        # Like llama.cpp's converter: a divisor per frequency, and no formula.
        plain = 10000.0 ** -torch.arange(0, 1, 2 / (config.hidden_size // config.num_attention_heads))
        divisors = plain / ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))[0]
        writer.add_tensor("rope_freqs.weight", divisors.numpy())
    if rope["rope_type"] == "yarn":
        writer.add_key_length(config.head_dim)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "beta_fast" in config.rope_parameters:
            writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    for name, value in (extra or {}).items():
        if isinstance(value, int):
            writer.add_uint32(name, value)
        else:
            writer.add_float32(name, value)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*ALPHABET, "<s>", "</s>", "ab", "<b>"])
    writer.add_token_types([1] * 256 + [3, 3, 1, 3])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(257)
    for name, tensor in _parted(model.state_dict()).items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        # Gemma's norms multiply by their values plus one; llama.cpp's files have the sums.
        values = tensor.numpy() + (1.0 if architecture == "gemma3" and "norm" in name else 0.0)
        if architecture in INTERLEAVED and ("q_proj" in name or "k_proj" in name):
            values = interleave(values, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
        used = kind if values.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(name, architecture), gguf.quants.quantize(values, used), raw_dtype=used)
    for name, values in (added or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
