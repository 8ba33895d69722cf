"""Builds a tokenizer from a GGUF file's metadata: byte-level BPE (`gpt2`) or SentencePiece BPE (`llama`)."""

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import BPE

from local_engine.errors import ModelUnsupported
from local_engine.text.panics import panics_told
from local_engine.text.tokenizer import Tokenizer

NORMAL: Final = 1
CONTROL: Final = 3
USER_DEFINED: Final = 4
QWEN2_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_SPLIT: Final = QWEN2_SPLIT.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN_SPLIT: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ENDINGS: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K_SPLIT: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ENDINGS}|\p{{N}}{{1,3}}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# llama.cpp's rule for files that name none: several expressions, each applied to what the previous ones left.
DEFAULT_SPLITS: Final = (
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)
LLAMA3_NAMES: Final = ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0")
SPLITS: Final = {
    "default": DEFAULT_SPLITS,
    "tekken": (TEKKEN_SPLIT,),
    # Phi-4-mini's, as in its own tokenizer.
    "gpt-4o": (O200K_SPLIT,),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "seed-coder", "stablelm2"), (QWEN2_SPLIT,)),
    **dict.fromkeys((*LLAMA3_NAMES, "smaug-bpe", "dbrx"), (LLAMA3_SPLIT,)),
}
# GPT-2's own rule, and the same after splitting off single digits.
PLAIN: Final = ("gpt-2", "mpt", "olmo", "trillion", "a.x-4.0", "mellum")
SINGLE_DIGITS: Final = ("smollm", "starcoder", "refact", "command-r", "minerva-7b")
# A word that is a token is that token, whatever its merges; these also begin with BOS unless the file says otherwise.
WHOLE_WORDS_FIRST: Final = {*LLAMA3_NAMES, "tekken"}
TURN_ENDS: Final = ("<|eot_id|>", "<|im_end|>", "<|end_of_turn|>", "<end_of_turn>", "<|end|>")
SPACE: Final = "\u2581"
# Eight times Gemma's, whose pieces are the longest (31) and most numerous (262,144, with half a million merges).
MOST_CHARACTERS: Final = 256
MOST_MERGES: Final = 1 << 22


def build_gguf_tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    """Raises KeyError or ValueError for missing or damaged fields, ModelUnsupported for unsupported kinds."""
    model = metadata["tokenizer.ggml.model"]
    if model not in BUILDERS:
        raise ModelUnsupported(f"The GGUF vocabulary is of kind {model}; {' and '.join(BUILDERS)} are read from GGUF.")
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    kinds: list[int] = metadata["tokenizer.ggml.token_type"]
    try:
        with panics_told():
            fast = BUILDERS[model](metadata)
    except (KeyError, ModelUnsupported):
        raise
    # The tokenizers library raises bare Exception for an inconsistent vocabulary.
    except Exception as error:
        raise ValueError(f"the vocabulary does not hold together: {error}") from error
    special = [AddedToken(token, special=True) for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    fast.add_special_tokens(special)
    fast.add_tokens(
        [AddedToken(token, normalized=False) for token, kind in zip(tokens, kinds, strict=True) if kind == USER_DEFINED]
    )
    begins = model == "llama" or metadata.get("tokenizer.ggml.pre") in WHOLE_WORDS_FIRST
    return Tokenizer(
        fast,
        chat_template=metadata.get("tokenizer.chat_template"),
        tool_template=metadata.get("tokenizer.chat_template.tool_use"),
        bos_token_id=metadata.get("tokenizer.ggml.bos_token_id"),
        eos_token_ids=_end_ids(metadata),
        adds_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", begins)),
    )


def _end_ids(metadata: dict[str, Any]) -> list[int]:
    """End tokens of texts, turns and messages, as far as the file names them.

    Older files name no end of turn, though their templates write one: then it is recognised by its text, as in
    llama.cpp.
    """
    named = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    pairs = zip(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"], strict=True)
    if named[1] is None:
        named += [at for at, (token, kind) in enumerate(pairs) if kind == CONTROL and token in TURN_ENDS]
    return list(dict.fromkeys(int(token) for token in named if token is not None))


def _byte_level(metadata: dict[str, Any]) -> FastTokenizer:
    """Byte-level BPE, with the file's merges and splitting rule."""
    name = str(metadata.get("tokenizer.ggml.pre", "default"))
    fast = FastTokenizer(
        BPE(
            vocab=_ids(metadata),
            merges=[_pair(merge) for merge in metadata["tokenizer.ggml.merges"]],
            ignore_merges=name in WHOLE_WORDS_FIRST,
        )
    )
    fast.pre_tokenizer = _pre_tokenizer(name)
    fast.decoder = decoders.ByteLevel()
    return fast


def _sentence_piece(metadata: dict[str, Any]) -> FastTokenizer:
    """SentencePiece BPE: the best-scored piece is merged first, spaces are U+2581, unknown characters become bytes."""
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    fast = FastTokenizer(
        BPE(
            vocab=_ids(metadata),
            merges=_merges_by_score(metadata),
            unk_token=tokens[int(metadata.get("tokenizer.ggml.unknown_token_id", 0))],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    spaces = normalizers.Replace(" ", SPACE)
    begins_with_space = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    fast.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if begins_with_space else spaces
    fast.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return fast


def _merges_by_score(metadata: dict[str, Any]) -> list[tuple[str, str]]:
    """Every way to build a piece from two others, highest-scored pieces first.

    Raises ValueError for pieces that would take gigabytes, or days.
    """
    columns = [metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "scores", "token_type")]
    pieces = [(token, score) for token, score, kind in zip(*columns, strict=True) if kind in (NORMAL, USER_DEFINED)]
    known = {token for token, _ in pieces}
    if (longest := max(map(len, known), default=0)) > MOST_CHARACTERS:
        raise ValueError(f"a token has {longest} characters, and pieces have up to {MOST_CHARACTERS}")
    merges = (
        (token[:at], token[at:])
        for token, _ in sorted(pieces, key=lambda piece: -piece[1])
        for at in range(1, len(token))
        if token[:at] in known and token[at:] in known
    )
    found = list(islice(merges, MOST_MERGES + 1))
    if len(found) > MOST_MERGES:
        raise ValueError(f"its pieces can be merged in more than {MOST_MERGES} ways")
    return found


def _ids(metadata: dict[str, Any]) -> dict[str, int]:
    return {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"])}


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


BUILDERS: Final[dict[str, Callable[[dict[str, Any]], FastTokenizer]]] = {
    "gpt2": _byte_level,
    "llama": _sentence_piece,
}


def _pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in SINGLE_DIGITS:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    if name in PLAIN:
        return byte_level
    splits = SPLITS.get(name)
    if splits is None:
        known = ", ".join(sorted((*SPLITS, *PLAIN, *SINGLE_DIGITS)))
        raise ModelUnsupported(f"The GGUF splitting rule {name!r} is not known; take a file with one of {known}.")
    return pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(split), behavior="isolated") for split in splits),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
