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

# transformers is imported where it is used: that takes as long as importing torch, and only who runs these tests needs
# it. Its types are not read (see typings).
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
ALPHABET = sorted(byte_alphabet(), key=byte_alphabet().__getitem__)


def make_model(family: str, head_dim: int = 32) -> PreTrainedModel:
    """A random model of the family, float32, weights large enough that greedy choices are clear.

    Llama's and Qwen2's heads are as wide as their shape makes them.
    """
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        MistralConfig,
        MistralForCausalLM,
        Qwen2Config,
        Qwen2ForCausalLM,
        Qwen3Config,
        Qwen3ForCausalLM,
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
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=head_dim))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2 if parameter.dim() > 1 else 0.4)
    return model.eval()


def byte_level() -> FastTokenizer:
    """A token for each byte, and two special ones."""
    fast = FastTokenizer(BPE(vocab={character: i for i, character in enumerate(ALPHABET)}, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    return fast


def write_folder(model: PreTrainedModel, folder: Path, *, shard: str = "1GB") -> Path:
    """Save as Hugging Face does, with a tokenizer."""
    model.save_pretrained(folder, max_shard_size=shard)
    byte_level().save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m['role'] + ':' + m['content'] }}{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return folder


GGUF_NAMES = {
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


def gguf_name(name: str) -> str:
    """llama.cpp's name of a Hugging Face tensor."""
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
    """Write a model as llama.cpp's converter would, its matrices quantised to `kind`, in several files if those are to
    hold no more than some tensors; `added` are tensors beside its own."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=tensors_a_file)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(10000.0)
    if architecture == "llama" and getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
    if sliding_window is not None:
        writer.add_sliding_window(sliding_window)
    if sliding_pattern is not None:
        writer.add_sliding_window_pattern(sliding_pattern)
    if config.rope_parameters["rope_type"] == "llama3":
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        # As llama.cpp's converter: each frequency's divisor, and no rule.
        plain = 10000.0 ** -torch.arange(0, 1, 2 / (config.hidden_size // config.num_attention_heads))
        divisors = plain / ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))[0]
        writer.add_tensor("rope_freqs.weight", divisors.numpy())
    if config.rope_parameters["rope_type"] == "yarn":
        writer.add_key_length(config.head_dim)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(config.rope_parameters["factor"])
        writer.add_rope_scaling_orig_ctx_len(config.rope_parameters["original_max_position_embeddings"])
        if "beta_fast" in config.rope_parameters:
            writer.add_rope_scaling_yarn_beta_fast(config.rope_parameters["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(config.rope_parameters["beta_slow"])
    for name, value in (extra or {}).items():
        writer.add_float32(name, value)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*ALPHABET, "<s>", "</s>", "ab", "<b>"])
    writer.add_token_types([1] * 256 + [3, 3, 1, 3])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(257)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.numpy()
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            values = interleave(values, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
        used = kind if values.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(values, used), raw_dtype=used)
    for name, values in (added or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
