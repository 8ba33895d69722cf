"""A conversation to numbers in one pass over capped text: pure, bounded, and free of any model or metric."""

import math
import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from classifier.lexicon import GROUP_NAMES
from classifier.protocol import Conversation
from classifier.words import Vocabulary, cap, clean, split_words

Vector = NDArray[np.float32]

_OPTION = re.compile(r"^[ \t]*\(?([A-J])[.):][ \t]*(.*)$", re.MULTILINE)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_NAMED = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)")
_RELATIONS = tuple(GROUP_NAMES.index(name) for name in ("compare", "each", "condition", "sequence"))
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


@dataclass(frozen=True, slots=True)
class Reading:
    """What one pass saw: the hand features, and the word pieces with how often each occurs."""

    hand: Vector
    piece_ids: NDArray[np.int32]
    piece_counts: Vector


def visible_text(conversation: Conversation) -> str:
    """The text that is judged: the last user turn, with the turn before it when it is only a short follow-up."""
    last = conversation.last_user
    if len(last) < _FOLLOW_UP_CHARACTERS and conversation.earlier:
        return f"{conversation.earlier[-1][-_CONTEXT_CHARACTERS:]}\n{last}"
    return last


def is_readable(text: str) -> bool:
    """Whether there is a letter or digit among what would be read."""
    return any(map(str.isalnum, clean(cap(text))))


def read(text: str, vocabulary: Vocabulary) -> Reading:
    """Never raises on any str; cost is bounded by the cap."""
    capped = clean(cap(text))
    words = split_words(capped)
    counts = Counter(words)
    ids: list[int] = []
    repeats: list[int] = []
    pieces = 0
    rarities: list[float] = []
    groups = [0] * len(GROUP_NAMES)
    for word, count in counts.items():
        found, rarity, tags = vocabulary.look_up(word)
        for group in tags:
            groups[group] += count
        ids += found
        repeats += [count] * len(found)
        pieces += count * len(found)
        if rarity >= 0.0:
            rarities.append(rarity)
    shape = _shape(text, capped, counts, len(words))
    alphabetic = max(len(rarities), 1)
    shape += [
        sum(rarities) / alphabetic,
        max(rarities, default=0.0),
        sum(1 for rare in rarities if rare > 9.0) / alphabetic,
        pieces / max(len(words), 1) - 1.0,
        math.log1p(sum(groups[group] for group in _RELATIONS)) * math.log1p(len(words)) / 4.0,
    ]
    shape += [math.log1p(count) for count in groups]
    return Reading(
        np.array(shape, dtype=np.float32), np.array(ids, dtype=np.int32), np.array(repeats, dtype=np.float32)
    )


def _shape(text: str, capped: str, counts: Counter[str], word_count: int) -> list[float]:
    log = math.log1p
    size = max(len(capped), 1)
    length = log(len(text.strip()))  # blanks are the cheapest padding
    sentences = len(_SENTENCE_END.findall(capped))
    numbers = _NUMBER.findall(capped)
    options = [text for _, text in _OPTION.findall(capped)]
    option_words = sum(len(option.split()) for option in options)
    stem_words = max(len(capped.split()) - option_words - len(options), 0)
    letters = sum(len(word) * count for word, count in counts.items())
    return [
        length,
        length * length / 10.0,
        log(stem_words),
        log(capped.count("\n")),
        log(sentences),
        log(stem_words / max(sentences, 1)),
        letters / max(word_count, 1),
        len(counts) / max(word_count, 1),
        sum(map(len, numbers)) / size,
        log(len(numbers)),
        log(len(set(numbers))),
        log(max((min(len(number), 12) for number in numbers), default=0)),
        log(sum("." in number for number in numbers)),
        log(counts["$"] + counts["%"] + counts["€"] + counts["£"]),
        log(counts["\\"]),
        log(counts["+"] + counts["="] + counts["*"] + counts["/"] + counts["^"] + counts["<"] + counts[">"]),
        log(counts["("] + counts["["] + counts["{"]),
        log(counts["_"] + counts[";"] + counts["{"] + counts["`"] + counts["#"]),
        float("```" in capped or "def " in capped or "#include" in capped or "import " in capped),
        log(counts["?"]),
        log(counts['"'] + counts["'"] + counts["“"]),
        log(counts[","]),
        float(len(options)) / 4.0,
        log(option_words / max(len(options), 1)),
        sum(option.strip()[:1].isdigit() for option in options) / max(len(options), 1),
        _overlap(options),
        log(len(_NAMED.findall(capped))),
        sum(not character.isascii() for character in capped) / size if not capped.isascii() else 0.0,
        min(len(numbers) / max(word_count, 1), 0.5),
    ]


def _overlap(options: list[str]) -> float:
    """Share of words that the options have in common: near-identical options are harder to tell apart."""
    if len(options) < 2:
        return 0.0
    bags = [set(option.lower().split()) for option in options]
    union: set[str] = set().union(*bags)
    shared = sum(len(bag) for bag in bags) - len(union)
    return shared / max(sum(len(bag) for bag in bags), 1)
