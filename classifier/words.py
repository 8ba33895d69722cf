"""Text to word and word-piece ids, in plain Python; knows a vocabulary and nothing of models or difficulty."""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

HEAD_CHARACTERS = 750
TAIL_CHARACTERS = 250
MAX_CACHED_WORDS = 50_000
MAX_WORD_CHARACTERS = 40
FIRST_COMMON_ID = 1996  # pieces from here on are sorted by frequency in BERT's vocabulary
UNKNOWN_PIECE = "[UNK]"

# Words, single ideographs, single punctuation marks: the split that BERT's uncased vocabulary was made with.
_IDEOGRAPHS = "\u3400-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"[^\W_{_IDEOGRAPHS}]+|[{_IDEOGRAPHS}]|[^\w\s]|_")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u2060\ufeff\ufffd\ud800-\udfff]")


def cap(text: str) -> str:
    """The first 750 and the last 250 characters: reading is bounded whatever the length."""
    if len(text) <= HEAD_CHARACTERS + TAIL_CHARACTERS:
        return text
    return text[:HEAD_CHARACTERS] + "\n" + text[-TAIL_CHARACTERS:]


def clean(text: str) -> str:
    """Drop control characters, zero-width marks and lone surrogates, and fold look-alike alphabets: they hide words."""
    if text.isascii():
        return text if text.isprintable() else _UNPRINTABLE.sub("", text)
    return unicodedata.normalize("NFKC", _UNPRINTABLE.sub("", text))


def split_words(text: str) -> list[str]:
    """Lower-case words and punctuation marks, accents stripped."""
    text = text.lower()
    if not text.isascii():
        text = "".join(mark for mark in unicodedata.normalize("NFD", text) if unicodedata.category(mark) != "Mn")
    return _TOKEN.findall(text)


class Word(NamedTuple):
    """What is known of a word: its piece ids, how rare it is (negative for marks and numbers), and its tags."""

    pieces: tuple[int, ...]
    rarity: float
    tags: tuple[int, ...]


class Vocabulary:
    """Greedy longest-match word pieces over a fixed list; words are remembered, up to a bound.

    `tags` are whatever the caller wants to know of certain words at the same look-up.
    """

    def __init__(self, pieces: Sequence[str], tags: Mapping[str, tuple[int, ...]] | None = None) -> None:
        self._ids = {piece: number for number, piece in enumerate(pieces)}
        self._tags = tags or {}
        self._unknown = (self._ids[UNKNOWN_PIECE],)
        self._longest = min(MAX_WORD_CHARACTERS, max(len(piece) for piece in pieces))
        self._cache: dict[str, Word] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def look_up(self, word: str) -> Word:
        """A word that cannot be spelt from the vocabulary is one unknown piece."""
        found = self._cache.get(word)
        if found is None:
            whole = self._ids.get(word)
            pieces = self._spell(word[:MAX_WORD_CHARACTERS]) if whole is None else (whole,)
            rarity = math.log(max(max(pieces) - FIRST_COMMON_ID, 1)) if word.isalpha() else -1.0
            found = Word(pieces, rarity, self._tags.get(word, ()))
            if len(self._cache) >= MAX_CACHED_WORDS:
                self._cache.clear()
            self._cache[word] = found
        return found

    def _spell(self, word: str) -> tuple[int, ...]:
        spelt: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                piece = self._ids.get(prefix + word[start:end])
                if piece is not None:
                    spelt.append(piece)
                    start = end
                    break
            else:
                return self._unknown
        return tuple(spelt)
