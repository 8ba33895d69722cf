"""Numeric features of a conversation in one pass over capped text: pure, bounded, independent of any model or
metric."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from classifier.lexicon import GROUP_NAMES, MARKS
from classifier.protocol import Conversation
from classifier.words import Vocabulary, cap, clean

Vector = NDArray[np.float32]

# These begin with a literal or a single character class, which regex searches scan for quickly, so not with `\d+`.
_OPTION = re.compile(r"\n[ \t]*\(?[A-J][.):][ \t]*(.*)")
_NAMED = re.compile(r" (?<=[a-z,;] )[A-Z](?=[a-z])")
_NUMBER = re.compile(r"\d\d*(?:[.,]\d+)*")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
RELATIONS = tuple(GROUP_NAMES.index(name) for name in ("compare", "each", "condition", "sequence"))
_GROUPS = len(GROUP_NAMES)
_RARE = 9.0
_FOLLOW_UP_CHARACTERS = 80
_CONTEXT_CHARACTERS = 400

SHAPE_NAMES: tuple[str, ...] = (
    "log_characters",
    "log_characters_squared",
    "log_stem_words",
    "log_lines",
    "log_sentences",
    "log_sentence_words",
    "word_characters",
    "distinct_share",
    "digit_share",
    "log_numbers",
    "log_distinct_numbers",
    "log_largest_number",
    "decimals",
    "log_money_signs",
    "log_backslashes",
    "log_operators",
    "log_brackets",
    "log_code_marks",
    "has_code",
    "log_question_marks",
    "log_quotes",
    "log_commas",
    "options",
    "log_option_words",
    "numeric_option_share",
    "option_overlap",
    "log_named",
    "non_ascii_share",
    "number_density",
    "rarity",
    "rarest",
    "rare_share",
    "split_share",
    "relations_in_prose",
)
FEATURE_NAMES: tuple[str, ...] = (*SHAPE_NAMES, *GROUP_NAMES)


class Reading(NamedTuple):
    """Result of one pass: the hand-made features, and the word pieces of each distinct word with its number of
    occurrences.

    `is_readable` says whether there is any letter or digit.
    """

    hand: list[float]
    piece_ids: Sequence[int]
    piece_counts: Sequence[int]
    is_readable: bool


class _Seen(NamedTuple):
    """A cleaned text, its lower case, its number of blank-separated parts, and all its words in order."""

    capped: str
    lowered: str
    parts: int
    words: Sequence[str]
    different_words: int


def visible_text(conversation: Conversation) -> str:
    """The text that is judged: the last user turn, preceded by the turn before it if it is only a short follow-up."""
    last = conversation.last_user
    if len(last) < _FOLLOW_UP_CHARACTERS and conversation.earlier:
        return f"{conversation.earlier[-1][-_CONTEXT_CHARACTERS:]}\n{last}"
    return last


def is_readable(text: str) -> bool:
    """Whether the part of the text that `read` sees contains a letter or digit."""
    return any(map(str.isalnum, clean(cap(text))))


def read(text: str, vocabulary: Vocabulary) -> Reading:
    """Never raises for any str; the cap bounds the cost."""
    capped = clean(cap(text))
    lowered = capped.lower()
    # Work per word uses loops that run inside the interpreter, as Python loops would dominate the cost.
    parts = lowered.split()
    words = vocabulary.split(parts)
    counts = Counter(words)
    known = [*map(vocabulary.look_up, counts)]
    pieces = [word.pieces for word in known]
    ids = [*chain.from_iterable(pieces)]
    repeats = [*counts.values()]
    tags = [0] * (_GROUPS + len(MARKS))
    for word, count in zip(known, repeats, strict=True):
        for tag in word.tags:
            tags[tag] += count
    if len(ids) > len(known):
        repeats = [count for spelling, count in zip(pieces, repeats, strict=True) for _ in spelling]
    rarities = [word.rarity for word in known if word.rarity >= 0.0]
    alphabetic = len(rarities) or 1
    log = math.log1p
    logs = [log(count) if count else 0.0 for count in tags]
    seen = _Seen(capped, lowered, len(parts), words, len(counts))
    hand = _shape(len(text.strip()), seen, logs[_GROUPS:])  # blanks are the cheapest padding
    hand += (
        sum(rarities) / alphabetic,
        max(rarities) if rarities else 0.0,
        len([rarity for rarity in rarities if rarity > _RARE]) / alphabetic,
        sum(repeats) / (len(words) or 1) - 1.0,
        log(sum([tags[group] for group in RELATIONS])) * log(len(words)) / 4.0,
    )
    hand += logs[:_GROUPS]
    return Reading(hand, ids, repeats, bool(rarities) or any(map(str.isalnum, capped)))


def _shape(characters: int, seen: _Seen, marks: list[float]) -> list[float]:
    """`characters` is the length of the whole text; `marks` are log counts of each kind of mark."""
    log = math.log1p
    capped, lowered, parts, words, different_words = seen
    numbers: list[str] = _NUMBER.findall(lowered)
    sentences = len(_SENTENCE_END.findall(lowered))
    size, some = len(capped) or 1, len(words) or 1
    length = log(characters)
    money, backslashes, operators, brackets, code_marks, questions, quotes, commas = marks
    options: list[str] = _OPTION.findall("\n" + capped)  # the lettered answer options, without their letters
    option_words = sum([len(option.split()) for option in options])
    stem_words = max(parts - option_words - len(options), 0)
    return [
        length,
        length * length / 10.0,
        log(stem_words),
        log(capped.count("\n")),
        log(sentences),
        log(stem_words / (sentences or 1)),
        len("".join(words)) / some,
        different_words / some,
        *_number_shape(numbers, size),
        money,
        backslashes,
        operators,
        brackets,
        code_marks,
        1.0 if "```" in capped or "def " in capped or "#include" in capped or "import " in capped else 0.0,
        questions,
        quotes,
        commas,
        *_option_shape(options, option_words),
        log(len(_NAMED.findall(capped))) if capped != lowered else 0.0,
        0.0 if capped.isascii() else sum([not character.isascii() for character in capped]) / size,
        min(len(numbers) / some, 0.5),
    ]


def _number_shape(numbers: Sequence[str], size: int) -> tuple[float, ...]:
    """Share of digits; then, as logs, the count of numbers, of distinct ones, of the largest one's digits, of
    decimals."""
    if not numbers:
        return (0.0, 0.0, 0.0, 0.0, 0.0)
    log = math.log1p
    lengths = [*map(len, numbers)]
    return (
        sum(lengths) / size,
        log(len(numbers)),
        log(len(set(numbers))),
        log(min(max(lengths), 12)),
        log(len([number for number in numbers if "." in number])),
    )


def _option_shape(options: list[str], option_words: int) -> tuple[float, ...]:
    """The number of options, log words per option, the share of numeric ones, and their overlap."""
    if not options:
        return (0.0, 0.0, 0.0, 0.0)
    return (
        len(options) / 4.0,
        math.log1p(option_words / len(options)),
        sum([option.strip()[:1].isdigit() for option in options]) / len(options),
        _overlap(options),
    )


def _overlap(options: list[str]) -> float:
    """Share of words that options have in common: near-identical options are harder to tell apart."""
    if len(options) < 2:
        return 0.0
    bags = [set(option.lower().split()) for option in options]
    union: set[str] = set().union(*bags)
    shared = sum(len(bag) for bag in bags) - len(union)
    return shared / max(sum(len(bag) for bag in bags), 1)
