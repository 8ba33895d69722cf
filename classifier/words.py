"""Text to words and word-piece ids, in plain Python; knows a vocabulary and nothing of models or difficulty."""

import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

HEAD_CHARACTERS = 750
TAIL_CHARACTERS = 250
MAX_REMEMBERED = 25_000
MAX_WORD_CHARACTERS = 40
FIRST_COMMON_ID = 1996  # from here on BERT's vocabulary is sorted by frequency
UNKNOWN_PIECE = "[UNK]"

# Words, single ideographs, single punctuation marks: the split that BERT's uncased vocabulary was made with. For ASCII
# the short pattern finds the same, faster.
_IDEOGRAPHS = "\u3400-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"[^\W_{_IDEOGRAPHS}]+|[{_IDEOGRAPHS}]|[^\w\s]|_")
_ASCII_TOKEN = re.compile(r"[a-z0-9]+|\S")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u2060\ufeff\ufffd\ud800-\udfff]")


def cap(text: str) -> str:
    """The first 750 and last 250 characters, which bounds the cost for any length."""
    if len(text) <= HEAD_CHARACTERS + TAIL_CHARACTERS:
        return text
    return text[:HEAD_CHARACTERS] + "\n" + text[-TAIL_CHARACTERS:]


def clean(text: str) -> str:
    """Drops control characters, zero-width marks and lone surrogates, and folds look-alike characters, all of which can
    hide words."""
    if text.isascii():
        return text if text.isprintable() else _UNPRINTABLE.sub("", text)
    return unicodedata.normalize("NFKC", _UNPRINTABLE.sub("", text))


def is_word_character(character: str) -> bool:
    """Whether it forms words with its neighbours."""
    return len(_TOKEN.findall(2 * character)) == 1


def strip_accents(text: str) -> str:
    return "".join([mark for mark in unicodedata.normalize("NFD", text) if unicodedata.category(mark) != "Mn"])


@dataclass(frozen=True, slots=True)
class Word:
    """A word's piece ids, rarity (negative for marks and numbers), and tags."""

    pieces: tuple[int, ...]
    rarity: float
    tags: tuple[int, ...]


Found = TypeVar("Found")


class Remembered(dict[str, Found]):
    """Caches computed values; long texts are not cached, and a full cache is cleared."""

    def __init__(self, find: Callable[[str], Found]) -> None:
        self._find = find

    def __missing__(self, text: str) -> Found:
        found = self._find(text)
        if len(text) <= MAX_WORD_CHARACTERS:
            if len(self) >= MAX_REMEMBERED:
                self.clear()
            self[text] = found
        return found


class Vocabulary:
    """Greedy longest-match word pieces over a fixed list. Words and their accent-free spellings are cached, up to a
    bound.

    `tags` are arbitrary facts about words, returned by the same look-up. A word that cannot be spelt from the
    vocabulary is one unknown piece.
    """

    def __init__(self, pieces: Sequence[str], tags: Mapping[str, tuple[int, ...]] | None = None) -> None:
        self._ids = {piece: number for number, piece in enumerate(pieces)}
        self._inner_ids = {piece[2:]: number for piece, number in self._ids.items() if piece.startswith("##")}
        self._tags = tags or {}
        self._unknown = (self._ids[UNKNOWN_PIECE],)
        self._longest = min(MAX_WORD_CHARACTERS, max(len(piece) for piece in pieces))
        # Bound to the dictionaries' own methods: cache hits involve no Python call.
        self._strip: Callable[[str], str] = Remembered(strip_accents).__getitem__
        self.look_up: Callable[[str], Word] = Remembered(self._find).__getitem__

    def __len__(self) -> int:
        return len(self._ids)

    def split(self, parts: Sequence[str]) -> list[str]:
        """Words and punctuation marks, without accents, of a lower-case text's blank-separated parts; accents never
        belong to a letter across a blank."""
        if not all(map(str.isascii, parts)):
            return _TOKEN.findall(" ".join([part if part.isascii() else self._strip(part) for part in parts]))
        words: list[str] = []
        for part in parts:
            if part.isalnum():  # most are, and a search costs five times as much
                words.append(part)
            else:
                words += _ASCII_TOKEN.findall(part)
        return words

    def _find(self, word: str) -> Word:
        whole = self._ids.get(word)
        pieces = self._spell(word[:MAX_WORD_CHARACTERS]) if whole is None else (whole,)
        rarity = math.log(max(max(pieces) - FIRST_COMMON_ID, 1)) if word.isalpha() else -1.0
        return Word(pieces, rarity, self._tags.get(word, ()))

    def _spell(self, word: str) -> tuple[int, ...]:
        spelt: list[int] = []
        start, size, find = 0, len(word), self._ids.get
        while start < size:
            for end in range(min(size, start + self._longest), start, -1):
                piece = find(word[start:end])
                if piece is not None:
                    spelt.append(piece)
                    start, find = end, self._inner_ids.get
                    break
            else:
                return self._unknown
        return tuple(spelt)
