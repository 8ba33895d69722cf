"""The plain-Python word pieces agree with the reference tokenizer on ordinary text, and any other text is harmless."""

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from classifier.artefact import read_artefact
from classifier.load import SHIPPED
from classifier.words import (
    MAX_REMEMBERED,
    MAX_WORD_CHARACTERS,
    Remembered,
    Vocabulary,
    cap,
    clean,
)
from tests.unit.classifier.plain_reading import split_words

PIECES = read_artefact(SHIPPED).pieces


@pytest.mark.parametrize(
    "text",
    [
        "What is the capital of France?",
        "Solve $x^2 + 3x = 10$, then (if possible) simplify.",
        "Électricité, naïveté, São Paulo and Zürich",
        "snake_case = camelCase + 3.14",
        "unbelievably antidisestablishmentarian",
        "你好，世界",
    ],
)
def test_pieces_are_those_of_the_reference(text: str) -> None:
    reference = Tokenizer(
        WordPiece(
            {piece: number for number, piece in enumerate(PIECES)}, unk_token="[UNK]", max_input_chars_per_word=100
        )
    )
    reference.normalizer = BertNormalizer(lowercase=True)
    reference.pre_tokenizer = BertPreTokenizer()
    vocabulary = Vocabulary(PIECES)
    ours = [piece for word in split_words(text) for piece in vocabulary.look_up(word).pieces]
    assert ours == reference.encode(text).ids


def test_cap_keeps_both_ends() -> None:
    capped = cap("a" * 750 + "b" * 5000 + "c" * 250)
    assert capped == "a" * 750 + "\n" + "c" * 250
    assert cap("short") == "short"


def test_clean_drops_what_hides_words() -> None:
    assert clean("a\x00b\u200bc\ud800d\nnext") == "abcd\nnext"


def test_a_word_outside_the_alphabet_is_unknown() -> None:
    assert Vocabulary(["[UNK]", "a", "##b"]).look_up("az").pieces == (0,)
    assert Vocabulary(["[UNK]", "a", "##b"]).look_up("abb").pieces == (1, 2, 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "snake_case: x=1,000.5km (or so)...\n\tend",
        "größe naïve İ5 ΑΣ x\u0308 \u0308 e\u0301\u0327",
        "ascii and größe, größe again",
        "你好，世界 5\u03086",
        "a\xa0b\u2028c\x85d\x1ce",
        "ö" * (MAX_WORD_CHARACTERS + 1) + " ö",
    ],
)
def test_a_vocabulary_splits_as_is_defined_however_often_it_is_asked(text: str) -> None:
    vocabulary, lowered = Vocabulary(PIECES), text.lower()
    assert [vocabulary.split(lowered.split()) for _ in range(2)] == [split_words(text)] * 2


def test_what_is_remembered_is_found_once_and_bounded() -> None:
    found: list[str] = []

    def find(text: str) -> int:
        found.append(text)
        return len(text)

    remembered = Remembered(find)
    long = "x" * (MAX_WORD_CHARACTERS + 1)
    assert [remembered[text] for text in ("ab", "ab", long, long)] == [2, 2, len(long), len(long)]
    assert found == ["ab", long, long]
    for number in range(MAX_REMEMBERED + 10):
        assert remembered[f"a{number}"] == len(f"a{number}")
        assert len(remembered) <= MAX_REMEMBERED
