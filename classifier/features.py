"""A conversation to numbers in one pass over capped text: pure, bounded, and free of any model or metric."""

import math
import re
from array import array
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from classifier.lexicon import GROUP_NAMES, MARKS
from classifier.protocol import Conversation
from classifier.words import Vocabulary, cap, clean

Vector = NDArray[np.float32]

_OPTION = re.compile(r"^[ \t]*\(?([A-J])[.):][ \t]*(.*)$", re.MULTILINE)
_NAMED = re.compile(r" (?<=[a-z,;] )[A-Z](?=[a-z])")  # opens with a literal, which is what a search is fast at
_RELATIONS = tuple(GROUP_NAMES.index(name) for name in ("compare", "each", "condition", "sequence"))
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
    """What one pass saw: the hand features, and the word pieces of each different word beside how often it occurs.

    `is_readable` says whether there is a letter or digit at all.
    """

    hand: list[float]
    piece_ids: NDArray[np.int64]
    piece_counts: NDArray[np.int64]
    is_readable: bool


class _Tally(NamedTuple):
    """How often each word occurs, in order of first occurrence, and what only chunks tell."""

    chunks: int
    letters: int
    words: dict[str, int]
    numbers: Sequence[str]
    sentences: int
    may_have_options: bool


def visible_text(conversation: Conversation) -> str:
    """The text that is judged: the last user turn, with the turn before it when it is only a short follow-up."""
    last = conversation.last_user
    if len(last) < _FOLLOW_UP_CHARACTERS and conversation.earlier:
        return f"{conversation.earlier[-1][-_CONTEXT_CHARACTERS:]}\n{last}"
    return last


def is_readable(text: str) -> bool:
    """Whether there is a letter or digit in what `read` would see of a text."""
    return any(map(str.isalnum, clean(cap(text))))


def read(text: str, vocabulary: Vocabulary) -> Reading:
    """Never raises on any str; cost is bounded by the cap."""
    capped = clean(cap(text))
    tally = _count(capped, vocabulary)
    words = sum(tally.words.values())
    ids: list[int] = []
    repeats: list[int] = []
    rarities: list[float] = []
    tags = [0] * (_GROUPS + len(MARKS))
    for word, count in tally.words.items():
        known = vocabulary.look_up(word)
        for piece in known.pieces:
            ids.append(piece)
            repeats.append(count)
        if known.rarity >= 0.0:
            rarities.append(known.rarity)
        if known.tags:
            for tag in known.tags:
                tags[tag] += count
    alphabetic = len(rarities) or 1
    log = math.log1p
    hand = [
        *_shape(text, capped, tally, words, tags[_GROUPS:]),
        sum(rarities) / alphabetic,
        max(rarities) if rarities else 0.0,
        len([rarity for rarity in rarities if rarity > _RARE]) / alphabetic,
        sum(repeats) / (words or 1) - 1.0,
        log(sum([tags[group] for group in _RELATIONS])) * log(words) / 4.0,
        *map(log, tags[:_GROUPS]),
    ]
    pieces = np.frombuffer(array("q", ids + repeats), dtype=np.int64)
    return Reading(hand, pieces[: len(ids)], pieces[len(ids) :], bool(rarities) or any(map(str.isalnum, capped)))


def _count(capped: str, vocabulary: Vocabulary) -> _Tally:
    chunks = capped.lower().split()
    counts: dict[str, int] = {}
    numbers: list[str] = []
    sentences, may_have_options = 0, False
    for chunk in chunks:
        known = vocabulary.split(chunk)
        for word in known.words:
            counts[word] = counts.get(word, 0) + 1
        if known.numbers:
            numbers += known.numbers
        if known.ends_sentence:
            sentences += 1
        if known.may_be_option:
            may_have_options = True
    # Every printable character of ASCII is in a word or is a mark; elsewhere accents have been stripped.
    letters = len("".join(chunks)) if capped.isascii() else sum(map(mul, map(len, counts), counts.values()))
    return _Tally(len(chunks), letters, counts, numbers, sentences, may_have_options)


def _shape(text: str, capped: str, tally: _Tally, words: int, marks: list[int]) -> list[float]:
    log = math.log1p
    chunks, letters, different, numbers, sentences, may_have_options = tally
    size, some = len(capped) or 1, words or 1
    length = log(len(text.strip()))  # blanks are the cheapest padding
    money, backslashes, operators, brackets, code_marks, questions, quotes, commas = marks
    options = _options(capped) if may_have_options else []
    option_words = sum([len(option.split()) for option in options])
    stem_words = max(chunks - option_words - len(options), 0)
    return [
        length,
        length * length / 10.0,
        log(stem_words),
        log(capped.count("\n")),
        log(sentences),
        log(stem_words / (sentences or 1)),
        letters / some,
        len(different) / some,
        *_number_shape(numbers, size),
        log(money),
        log(backslashes),
        log(operators),
        log(brackets),
        log(code_marks),
        float("```" in capped or "def " in capped or "#include" in capped or "import " in capped),
        log(questions),
        log(quotes),
        log(commas),
        *_option_shape(options, option_words),
        log(len(_NAMED.findall(capped))),
        0.0 if capped.isascii() else sum([not character.isascii() for character in capped]) / size,
        min(len(numbers) / some, 0.5),
    ]


def _number_shape(numbers: Sequence[str], size: int) -> tuple[float, ...]:
    """Share of digits; how many numbers, how many different ones, digits of the largest, how many decimals, in logs."""
    if not numbers:
        return (0.0, 0.0, 0.0, 0.0, 0.0)
    log = math.log1p
    return (
        sum(map(len, numbers)) / size,
        log(len(numbers)),
        log(len(set(numbers))),
        log(min(max(map(len, numbers)), 12)),
        log(sum(["." in number for number in numbers])),
    )


def _options(capped: str) -> list[str]:
    """The lettered answers to choose from, without their letters."""
    return [words for _, words in _OPTION.findall(capped)]


def _option_shape(options: list[str], option_words: int) -> tuple[float, ...]:
    """How many options; their words in logs; the share of numeric ones; how much they overlap."""
    if not options:
        return (0.0, 0.0, 0.0, 0.0)
    return (
        len(options) / 4.0,
        math.log1p(option_words / len(options)),
        sum([option.strip()[:1].isdigit() for option in options]) / len(options),
        _overlap(options),
    )


def _overlap(options: list[str]) -> float:
    """Share of words that the options have in common: near-identical options are harder to tell apart."""
    if len(options) < 2:
        return 0.0
    bags = [set(option.lower().split()) for option in options]
    union: set[str] = set().union(*bags)
    shared = sum(len(bag) for bag in bags) - len(union)
    return shared / max(sum(len(bag) for bag in bags), 1)
