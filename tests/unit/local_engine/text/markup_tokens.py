"""A tokenizer with the marks of a chat."""

from tokenizers import AddedToken, decoders, normalizers, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import BPE

from local_engine.text.tokenizer import byte_alphabet


def chat_bytes() -> FastTokenizer:
    """Special tokens both in the vocabulary, as in Qwen's older files, and in addition to it."""
    vocabulary = byte_alphabet() | {"<|im_end|>": 256, "im": 257}
    fast = FastTokenizer(BPE(vocab=vocabulary, merges=[("i", "m")]))
    fast.normalizer = normalizers.NFC()
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    return fast
