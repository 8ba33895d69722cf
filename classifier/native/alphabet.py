"""Python's facts about characters as rows of letters.h's table, filled in when a text first contains a character."""

import re
import unicodedata
from functools import cache
from struct import Struct
from sys import maxunicode
from typing import Final

import numpy as np
from numpy.typing import NDArray

from classifier.words import clean, is_word_character, strip_accents

# letters.h's `Letter`: flags, combining class, three sizes, and the three texts in UTF-8.
_ROW: Final = Struct("=H4B5s4s9s")
_UNSTABLE, _FOREIGN = 2, 4
# Range of all characters composed of two, except compatibility ideographs, which come from one.
_COMPOSED: Final = range(0x20000)


class Alphabet:
    """Grows only under the GIL, which reader.cpp also holds, so that it sees a row either complete or empty."""

    def __init__(self) -> None:
        self.rows: NDArray[np.uint8] = np.zeros((maxunicode + 1) * _ROW.size, np.uint8)  # untouched, takes no memory
        self._places = self.rows.data
        self.learn("".join(map(chr, range(128))) + "ς")  # letters.h assumes these are known

    def learn(self, text: str) -> None:
        for character in set(text):
            place = ord(character) * _ROW.size
            if not (self._places[place] or self._places[place + 1]):
                reached, row = _describe(character)
                if reached != character:  # first, so that a known character implies known results
                    self.learn(reached.replace(character, ""))
                self._places[place : place + _ROW.size] = row


def _describe(character: str) -> tuple[str, bytes]:
    """The characters that it turns into, and its row."""
    cleaned = clean(character)
    lowered = "" if cleaned != character else " " if character.isspace() else character.lower()
    stripped = strip_accents(lowered)
    # A sigma after a letter ends the word; after ignorable characters it does so if there is a letter before those.
    is_cased = (character + "Σ").lower()[-1] == "ς"
    is_ignorable = not is_cased and ("a" + character + "Σ").lower()[-1] == "ς"
    known = (
        1
        | _depends(character, cleaned) * _UNSTABLE
        | any(map(str.isalnum, cleaned)) << 3
        | is_word_character(character) << 4
        | character.isalpha() << 5
        | character.isdecimal() << 6
        | character.isdigit() << 7
        | is_cased << 8
        | is_ignorable << 9
    )
    combining = unicodedata.combining(character) if lowered else 0
    texts = [cleaned.encode(), lowered.encode(), stripped.encode()]
    for number, (room, left_out) in enumerate(((5, _UNSTABLE), (4, _FOREIGN), (9, _FOREIGN))):
        if len(texts[number]) > room:
            known |= left_out
            texts[number] = b""
    return cleaned + lowered + stripped, _ROW.pack(known, combining, *map(len, texts), *texts)


def _depends(character: str, cleaned: str) -> bool:
    """Whether the result of `clean` may depend on neighbours even if combining classes are in order."""
    if cleaned in ("", character):
        return character in _composing()
    return cleaned[0] in _composing() or any(map(unicodedata.combining, (cleaned[0], cleaned[-1])))


@cache
def _composing() -> frozenset[str]:
    """Characters that may combine with a preceding one into a single character."""
    separate = unicodedata.normalize("NFD", "\n".join(map(chr, _COMPOSED)))
    return frozenset("".join(re.findall("[^\n]([^\n]+)", separate)))
