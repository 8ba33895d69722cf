"""Text to word and word-piece ids, in plain Python; knows a vocabulary and nothing of models or difficulty."""

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
FIRST_COMMON_ID = 1996  # pieces from here on are sorted by frequency in BERT's vocabulary
UNKNOWN_PIECE = "[UNK]"

# Words, single ideographs, single punctuation marks: the split that BERT's uncased vocabulary was made with.
_IDEOGRAPHS = "\u3400-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"[^\W_{_IDEOGRAPHS}]+|[{_IDEOGRAPHS}]|[^\w\s]|_")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_OPTION_LETTER = re.compile(r"\(?[a-j][.):]")
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


@dataclass(frozen=True, slots=True)
class Chunk:
    """What stands between two blanks: its words and marks, its numbers, and whether it ends a sentence or may letter
    an option (in lower case, so that whoever asks has to look again)."""

    words: tuple[str, ...]
    numbers: tuple[str, ...]
    ends_sentence: bool
    may_be_option: bool


def split_chunk(chunk: str) -> Chunk:
    """A text without blanks, in lower case; neither a word nor a number ever reaches across a blank."""
    words = tuple(split_words(chunk))
    return Chunk(
        (chunk,) if words == (chunk,) else words,  # one string for both: fewer places in memory to look at
        tuple(_NUMBER.findall(chunk)),
        chunk.endswith((".", "!", "?")),
        _OPTION_LETTER.match(chunk) is not None,
    )


@dataclass(frozen=True, slots=True)
class Word:
    """What is known of a word: its piece ids, how rare it is (negative for marks and numbers), and its tags."""

    pieces: tuple[int, ...]
    rarity: float
    tags: tuple[int, ...]


Found = TypeVar("Found")


class Remembered(dict[str, Found]):
    """Finds a text's value once; long texts are not kept, and when too many are kept all are forgotten."""

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
    """Greedy longest-match word pieces over a fixed list; chunks and words are remembered, up to a bound.

    `tags` are whatever the caller wants to know of certain words at the same look-up. A word that cannot be spelt
    from the vocabulary is one unknown piece.
    """

    def __init__(self, pieces: Sequence[str], tags: Mapping[str, tuple[int, ...]] | None = None) -> None:
        self._ids = {piece: number for number, piece in enumerate(pieces)}
        self._tags = tags or {}
        self._unknown = (self._ids[UNKNOWN_PIECE],)
        self._longest = min(MAX_WORD_CHARACTERS, max(len(piece) for piece in pieces))
        # Bound to the dictionaries themselves: what is remembered costs no call of Python.
        self.split: Callable[[str], Chunk] = Remembered(split_chunk).__getitem__
        self.look_up: Callable[[str], Word] = Remembered(self._find).__getitem__

    def __len__(self) -> int:
        return len(self._ids)

    def _find(self, word: str) -> Word:
        whole = self._ids.get(word)
        pieces = self._spell(word[:MAX_WORD_CHARACTERS]) if whole is None else (whole,)
        rarity = math.log(max(max(pieces) - FIRST_COMMON_ID, 1)) if word.isalpha() else -1.0
        return Word(pieces, rarity, self._tags.get(word, ()))

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
