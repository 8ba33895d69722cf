"""A known character's results are all known, and no composing character is missed."""

import unicodedata
from sys import maxunicode

import numpy as np
import pytest
from numpy.typing import NDArray

from classifier.native.alphabet import Alphabet
from classifier.words import clean, strip_accents

EVERY = "".join(map(chr, range(maxunicode + 1)))


def known(alphabet: Alphabet) -> set[str]:
    return {chr(code) for code in np.flatnonzero(flags(alphabet))}


def flags(alphabet: Alphabet) -> NDArray[np.uint16]:
    return alphabet.rows.reshape(maxunicode + 1, -1)[:, :2].copy().view(np.uint16)[:, 0]


def test_letters_that_the_reader_takes_for_known_are() -> None:
    assert known(Alphabet()) == {*map(chr, range(128)), "ς"}


@pytest.mark.parametrize("character", ["É", "½", "각", "İ", "ᾳ", "㈜", "ﷺ", "\u2028", "\ud800", "𝐀"])
def test_a_character_is_learnt_with_all_that_it_turns_into(character: str) -> None:
    alphabet = Alphabet()
    alphabet.learn(character)
    cleaned = clean(character)
    assert {character, *cleaned} <= known(alphabet)
    assert {*cleaned.lower(), *strip_accents(cleaned.lower())} - {" "} <= known(alphabet)


def test_whatever_python_puts_together_is_marked() -> None:
    alphabet = Alphabet()
    second = {part for parts in unicodedata.normalize("NFD", "\n".join(EVERY)).split("\n") for part in parts[1:]}
    alphabet.learn("".join(second))
    marked = flags(alphabet) & 2
    assert len(second) > 100
    assert [mark for mark in second if not marked[ord(mark)]] == []
