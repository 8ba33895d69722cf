"""A prompt's features and the classifier's arithmetic by their definitions: one search of the whole text per count, one
array expression per result. Slow; the reference for the data path."""

import math
import re
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from classifier.artefact import Artefact
from classifier.lexicon import GROUPS
from classifier.words import FIRST_COMMON_ID, Vocabulary, cap, clean, strip_accents

Floats = NDArray[np.float32]
WORD = re.compile("[^\\W_\u3400-\u9fff\uf900-\ufaff]+|[\u3400-\u9fff\uf900-\ufaff]|[^\\w\\s]|_")


def split_words(text: str) -> list[str]:
    """Lower-case words, single ideographs and punctuation marks, without accents."""
    return WORD.findall(strip_accents(text.lower()))


def hand_features(text: str, vocabulary: Vocabulary) -> Floats:
    """The features in the order of FEATURE_NAMES."""
    capped = clean(cap(text))
    words = split_words(capped)
    return np.array([*_shape(text, capped, words), *_spelling(words, vocabulary), *_groups(words)], dtype=np.float32)


def pooled_tokens(text: str, vocabulary: Vocabulary, artefact: Artefact) -> Floats:
    """The mean of the words' token vectors, weighted by piece and by the log of a word's occurrences."""
    tensors, counts = artefact.tensors, Counter(split_words(clean(cap(text))))
    pieces = [(piece, count) for word, count in counts.items() for piece in vocabulary.look_up(word).pieces]
    if not pieces:
        return np.zeros(tensors["token_vectors"].shape[1], dtype=np.float32)
    ids = np.array([piece for piece, _ in pieces])
    weights = np.log1p(np.array([count for _, count in pieces], dtype=np.float32)) * tensors["token_weights"][ids]
    total = weights @ tensors["token_vectors"][ids].astype(np.float32)
    return (total * tensors["token_scale"] / weights.sum()).astype(np.float32)


def standardised(text: str, vocabulary: Vocabulary, artefact: Artefact) -> Floats:
    raw = np.concatenate([hand_features(text, vocabulary), pooled_tokens(text, vocabulary, artefact)])
    return np.clip((raw - artefact.tensors["centre"]) / artefact.tensors["spread"], -4.0, 4.0).astype(np.float32)


def difficulty(vector: Floats, artefact: Artefact) -> float:
    tensors, share = artefact.tensors, artefact.facts["model"]["level_share"]
    first, second = (vector @ tensors["trait_weights"]).tolist()
    return float(np.interp((1.0 - share) * first + share * second, tensors["knots_score"], tensors["knots_difficulty"]))


def qualities(vector: Floats, artefact: Artefact, heads: list[str]) -> NDArray[np.float64]:
    """Mean and deviation of every head, one per row."""
    tensors, model = artefact.tensors, artefact.facts["model"]
    curves = [model["heads"][name] for name in heads]
    offsets, slopes = (np.array([curve[what] for curve in curves]) for what in ("offset", "slopes"))
    means = 1.0 / (1.0 + np.exp(-np.clip(offsets - slopes @ (vector @ tensors["trait_weights"]), -30.0, 30.0)))
    own = np.array([curve["deviation"] for curve in curves]) ** 2
    variance = float(vector @ tensors["covariance"] @ vector) + model["source_variance"]
    return np.column_stack([means, np.minimum(np.sqrt(own + variance) * means * (1.0 - means), 0.5)])


def _shape(text: str, capped: str, words: list[str]) -> list[float]:
    def marks(among: str) -> float:
        return math.log1p(sum(words.count(mark) for mark in among))

    length = math.log1p(len(text.strip()))
    sentences = len(re.findall(r"[.!?](?:\s|$)", capped))
    numbers: list[str] = re.findall(r"\d+(?:[.,]\d+)*", capped)
    options: list[str] = re.findall(r"^[ \t]*\(?[A-J][.):][ \t]*(.*)$", capped, re.MULTILINE)
    option_words = sum(len(option.split()) for option in options)
    stem_words = max(len(capped.split()) - option_words - len(options), 0)
    bags = [set(option.lower().split()) for option in options]
    in_bags = sum(map(len, bags))
    return [
        length,
        length**2 / 10.0,
        math.log1p(stem_words),
        math.log1p(capped.count("\n")),
        math.log1p(sentences),
        math.log1p(stem_words / max(sentences, 1)),
        sum(map(len, words)) / max(len(words), 1),
        len(set(words)) / max(len(words), 1),
        sum(map(len, numbers)) / max(len(capped), 1),
        math.log1p(len(numbers)),
        math.log1p(len(set(numbers))),
        math.log1p(max((min(len(number), 12) for number in numbers), default=0)),
        math.log1p(sum("." in number for number in numbers)),
        *map(marks, ("$%€£", "\\", "+=*/^<>", "([{", "_;{`#")),
        float(any(mark in capped for mark in ("```", "def ", "#include", "import "))),
        *map(marks, ("?", "\"'“", ",")),
        len(options) / 4.0,
        math.log1p(option_words / max(len(options), 1)),
        sum(option.strip()[:1].isdigit() for option in options) / max(len(options), 1),
        (in_bags - len(set[str]().union(*bags))) / max(in_bags, 1) if len(options) > 1 else 0.0,
        math.log1p(len(re.findall(r"(?<=[a-z,;] )[A-Z][a-z]+", capped))),
        sum(not character.isascii() for character in capped) / max(len(capped), 1),
        min(len(numbers) / max(len(words), 1), 0.5),
    ]


def _spelling(words: list[str], vocabulary: Vocabulary) -> list[float]:
    pieces = {word: vocabulary.look_up(word).pieces for word in words}
    rarities = [math.log(max(max(pieces[word]) - FIRST_COMMON_ID, 1)) for word in pieces if word.isalpha()]
    relations = sum(
        word in GROUPS[name].split() for word in words for name in ("compare", "each", "condition", "sequence")
    )
    return [
        sum(rarities) / max(len(rarities), 1),
        max(rarities, default=0.0),
        sum(rarity > 9.0 for rarity in rarities) / max(len(rarities), 1),
        sum(len(pieces[word]) for word in words) / max(len(words), 1) - 1.0,
        math.log1p(relations) * math.log1p(len(words)) / 4.0,
    ]


def _groups(words: list[str]) -> list[float]:
    return [math.log1p(sum(word in members.split() for word in words)) for members in GROUPS.values()]
