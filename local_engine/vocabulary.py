"""Builds a tokenizer from a GGUF file's metadata: byte-level BPE, with the splitting rule that the file names."""

from typing import Any, Final

from tokenizers import AddedToken, Regex, decoders, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import BPE

from local_engine.errors import ModelUnsupported
from local_engine.tokenizer import Tokenizer

CONTROL: Final = 3
USER_DEFINED: Final = 4
QWEN2_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_SPLIT: Final = QWEN2_SPLIT.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


def build_gguf_tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    """Raises KeyError or ValueError for missing or damaged fields, ModelUnsupported for other than byte-level BPE."""
    model = metadata["tokenizer.ggml.model"]
    if model != "gpt2":
        raise ModelUnsupported(f"The GGUF vocabulary is of kind {model}; only byte-level BPE (gpt2) is read from GGUF.")
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    kinds: list[int] = metadata["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    try:
        fast = FastTokenizer(BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    # The tokenizers library raises bare Exception for a vocabulary that does not hold together.
    except Exception as error:
        raise ValueError(f"the vocabulary does not hold together: {error}") from error
    fast.pre_tokenizer = _pre_tokenizer(str(metadata.get("tokenizer.ggml.pre", "default")))
    fast.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True) for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    fast.add_special_tokens(special)
    fast.add_tokens(
        [AddedToken(token, normalized=False) for token, kind in zip(tokens, kinds, strict=True) if kind == USER_DEFINED]
    )
    eos = metadata.get("tokenizer.ggml.eos_token_id")
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    return Tokenizer(
        fast,
        chat_template=metadata.get("tokenizer.chat_template"),
        bos_token_id=bos,
        eos_token_ids=[] if eos is None else [int(eos)],
        adds_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
    )


def _pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in ("smollm", "starcoder", "refact", "command-r"):
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    if name in ("default", "gpt-2"):
        return byte_level
    split = {"qwen2": QWEN2_SPLIT, "llama-bpe": LLAMA3_SPLIT, "llama3": LLAMA3_SPLIT}.get(name)
    if split is None:
        raise ModelUnsupported(f"The GGUF splitting rule {name!r} is not known.")
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
