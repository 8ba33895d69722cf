"""Tokenizers from GGUF metadata: SentencePiece's merging by score, whole words before merges, and end tokens."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_engine.errors import ModelUnsupported
from local_engine.loading.vocabulary import SPACE, build_gguf_tokenizer
from local_engine.text.tokenizer import byte_alphabet
from tests.unit.local_engine.loading.sentence_pieces import FIRST_PIECE, PIECES, SENTENCE_PIECE


def merged(text: str) -> list[str]:
    """SentencePiece's rule: repeatedly merge the pair whose piece scores best, the leftmost among equals."""
    parts = list(SPACE + text.replace(" ", SPACE))
    while True:
        pairs = [(PIECES.index(a + b), at) for at, (a, b) in enumerate(pairwise(parts)) if a + b in PIECES]
        if not pairs:
            return parts
        _, at = min(pairs)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def test_a_piece_that_no_vocabulary_has_is_refused() -> None:
    """With five million characters it was split in as many places, which takes days."""
    long = SENTENCE_PIECE | {"tokenizer.ggml.tokens": [*SENTENCE_PIECE["tokenizer.ggml.tokens"][:-1], "a" * 257]}
    with pytest.raises(ValueError, match="257 characters"):
        build_gguf_tokenizer(long)


@given(st.text(alphabet="abcte ", min_size=1, max_size=30))
def test_pieces_are_merged_by_score(text: str) -> None:
    tokenizer = build_gguf_tokenizer(SENTENCE_PIECE)
    ids = tokenizer.encode(text)
    assert ids[0] == 1
    assert [PIECES[i - FIRST_PIECE] for i in ids[1:]] == merged(text)
    assert tokenizer.decode(ids) == " " + text


def test_a_character_without_a_piece_is_its_bytes_and_markup_is_its_token() -> None:
    tokenizer = build_gguf_tokenizer(SENTENCE_PIECE)
    assert tokenizer.encode("é", with_bos=False) == [FIRST_PIECE, 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.decode([FIRST_PIECE, 3 + 0xC3, 3 + 0xA9]) == " é"
    assert tokenizer.encode("a</s>a", with_bos=False) == [FIRST_PIECE + 8, 2, FIRST_PIECE + 8]


def test_a_file_may_leave_out_the_first_space_and_the_bos() -> None:
    changes = {"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": False}
    assert build_gguf_tokenizer(SENTENCE_PIECE | changes).encode("abc") == [FIRST_PIECE + PIECES.index("abc")]


def byte_level(**changes: object) -> dict[str, Any]:
    tokens = [*sorted(byte_alphabet(), key=byte_alphabet().__getitem__), "<s>", "</s>", "<|eot|>", "abc"]
    named = {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * 256 + [3, 3, 3, 1],
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": 256,
        "tokenizer.ggml.eos_token_id": 257,
    } | named


@pytest.mark.parametrize(
    ("pre", "ids"),
    [("llama-bpe", [256, 259]), ("tekken", [256, 259]), ("qwen2", [97, 98, 99]), ("gpt-2", [97, 98, 99])],
)
def test_some_vocabularies_take_whole_words_first_and_begin_with_bos(pre: str, ids: list[int]) -> None:
    assert build_gguf_tokenizer(byte_level(pre=pre)).encode("abc") == ids


def test_a_turn_ends_where_the_file_says_and_templates_name_the_end_of_text() -> None:
    metadata = byte_level(eot_token_id=258, eom_token_id=257) | {"tokenizer.chat_template": "{{ eos_token }}"}
    tokenizer = build_gguf_tokenizer(metadata)
    assert tokenizer.eos_token_ids == {257, 258}
    assert tokenizer.render_chat([]) == "</s>"
    reversed_ids = build_gguf_tokenizer(
        metadata | {"tokenizer.ggml.eos_token_id": 258, "tokenizer.ggml.eot_token_id": 257}
    )
    assert reversed_ids.render_chat([]) == "<|eot|>"


def test_an_end_of_a_turn_that_the_file_does_not_name_is_known_by_its_text() -> None:
    tokens = byte_level()["tokenizer.ggml.tokens"]
    unnamed = byte_level(tokens=[*tokens[:-2], "<|eot_id|>", "abc"])
    assert build_gguf_tokenizer(unnamed).eos_token_ids == {257, 258}
    assert build_gguf_tokenizer(byte_level(tokens=[*tokens[:-2], "<|end|>", "abc"])).eos_token_ids == {257, 258}
    assert build_gguf_tokenizer(unnamed | {"tokenizer.ggml.eot_token_id": 256}).eos_token_ids == {256, 257}
    plain = byte_level(tokens=unnamed["tokenizer.ggml.tokens"], token_type=[1] * 256 + [3, 3, 1, 1])
    assert build_gguf_tokenizer(plain).eos_token_ids == {257}


@pytest.mark.parametrize("metadata", [byte_level(pre="runes"), byte_level(model="rwkv")])
def test_what_is_not_read_is_named(metadata: dict[str, Any]) -> None:
    with pytest.raises(ModelUnsupported, match=r"runes|rwkv"):
        build_gguf_tokenizer(metadata)


@pytest.mark.parametrize(
    ("pre", "text", "parts"),
    [
        ("tekken", "HelloWorld's 2024\n", ["Hello", "World", "'s", "Ġ", "2", "0", "2", "4", "Ċ"]),
        ("llama-bpe", "Hello's 2024\n", ["Hello", "'s", "Ġ", "202", "4", "Ċ"]),
        ("dbrx", "Hello's 2024\n", ["Hello", "'s", "Ġ", "202", "4", "Ċ"]),
        ("gpt-4o", "HelloWorld's 2024\n", ["Hello", "World's", "Ġ", "202", "4", "Ċ"]),
        ("qwen2", "Hello's 24", ["Hello", "'s", "Ġ", "2", "4"]),
        ("seed-coder", "Hello's 24", ["Hello", "'s", "Ġ", "2", "4"]),
        ("smaug-bpe", "Hello's 2024", ["Hello", "'s", "Ġ", "202", "4"]),
        ("pixtral", "Hello's 2024", ["Hello", "'s", "Ġ", "202", "4"]),
        ("minerva-7b", "Hello's 24", ["Hello", "'s", "Ġ", "2", "4"]),
        ("olmo", "Hello's 2024", ["Hello", "'s", "Ġ2024"]),
        ("default", "Hello's  20245<=x", ["Hello", "'", "s", "Ġ", "Ġ", "202", "45", "<=", "x"]),
    ],
)
def test_text_is_split_as_the_file_says(pre: str, text: str, parts: list[str]) -> None:
    pre_tokenizer = build_gguf_tokenizer(byte_level(pre=pre)).fast.pre_tokenizer
    assert pre_tokenizer is not None
    assert [part for part, _ in pre_tokenizer.pre_tokenize_str(text)] == parts
