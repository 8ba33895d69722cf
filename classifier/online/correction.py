"""Corrects a frozen classifier by what outcomes taught: per model a shift of quality in logits. Pure; no clock."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from classifier.logits import logit, sigmoid
from classifier.predictions import Lengths, Places, Qualities
from classifier.protocol import Classification, Classifier, Conversation, ModelProfile, Quality

LARGEST_SHIFT = 3.0
PRIOR_DEVIATION = 1.0
"""Of each shift, in logits: the frozen classifier's measured error on an unseen kind of prompt."""
MOST_STEPS = 200


@dataclass(frozen=True, slots=True)
class Outcome:
    """One judged answer: which model, what the frozen classifier predicted, and how good it was (0 to 1)."""

    model: str
    quality: float
    difficulty: float
    score: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Correction:
    """`logit(quality) + level + slope * (difficulty - 0.5)` for each model with shifts; the others are unchanged."""

    shifts: Mapping[str, tuple[float, float]]

    @property
    def id(self) -> str:
        """Equal shifts give equal ids."""
        return hashlib.sha256(repr(sorted(self.shifts.items())).encode()).hexdigest()[:12]

    def apply(self, model: str, quality: float, difficulty: float) -> float:
        return sigmoid(logit(quality) + self._shift(model, difficulty))

    def undo(self, model: str, quality: float, difficulty: float) -> float:
        """The frozen classifier's prediction, given one that this correction changed."""
        return sigmoid(logit(quality) - self._shift(model, difficulty))

    def _shift(self, model: str, difficulty: float) -> float:
        level, slope = self.shifts.get(model, (0.0, 0.0))
        return min(max(level + slope * (difficulty - 0.5), -LARGEST_SHIFT), LARGEST_SHIFT)


NONE = Correction({})


def learn(outcomes: Sequence[Outcome]) -> Correction:
    """The most likely shifts given all outcomes, in any order; without outcomes, no correction."""
    said: dict[str, list[tuple[float, ...]]] = {}
    for one in outcomes:
        said.setdefault(one.model, []).append((logit(one.quality), one.difficulty - 0.5, one.score, one.weight))
    return Correction({model: _most_likely(np.array(sorted(rows))) for model, rows in sorted(said.items())})


class CorrectedClassifier:
    """Implements protocol.Classifier; its version names both parts, so that every decision records its correction."""

    def __init__(self, frozen: Classifier, correction: Correction) -> None:
        self._frozen = frozen
        self._correction = correction
        self._split: _Split | None = None
        self.version = f"{frozen.version}+{correction.id}"

    def bind(self, profiles: Sequence[ModelProfile]) -> "CorrectedClassifier":
        return CorrectedClassifier(self._frozen.bind(profiles), self._correction)

    def classify(self, conversation: Conversation) -> Classification:
        found = self._frozen.classify(conversation)
        apply, quality, lengths = self._correction.apply, found.quality, found.output_tokens
        if not isinstance(quality, Qualities) or not isinstance(lengths, Lengths):
            corrected = {
                name: Quality(apply(name, one.mean, found.difficulty), one.deviation) for name, one in quality.items()
            }
            return msgspec.structs.replace(found, quality=corrected)
        if self._split is None or self._split.before is not quality.places:
            self._split = _Split(quality.places, self._correction.shifts)
        split, means = self._split, quality.means
        moved = [apply(model, means[origin], found.difficulty) for model, origin in split.origins]
        return msgspec.structs.replace(
            found,
            quality=quality.moved(split.after, [origin for _, origin in split.origins], moved),
            output_tokens=Lengths(split.after, lengths.tokens),
        )


class _Split:
    """Places for models that were alike until corrected. `origins` has, for each new place, a model there and its
    place before."""

    def __init__(self, before: Places, shifts: Mapping[str, tuple[float, float]]) -> None:
        kinds = {name: (shifts.get(name), at) for name, at in before.quality.items()}
        new = {kind: (at, name) for at, (kind, name) in enumerate({kind: name for name, kind in kinds.items()}.items())}
        self.before = before
        self.after = Places({name: new[kind][0] for name, kind in kinds.items()}, before.length)
        self.origins = [(name, at) for (_, at), (_, name) in new.items()]


def _most_likely(rows: NDArray[np.float64]) -> tuple[float, float]:
    """Level and slope of a logistic regression with the frozen logit as offset and a Gaussian prior around zero.

    Newton steps, each at most one logit long: over that distance the curvature changes little, so they cannot
    oscillate.
    """
    offset, difficulty, score, weight = rows.T
    features = np.c_[np.ones(len(rows)), difficulty]
    prior = np.eye(2) / PRIOR_DEVIATION**2
    found = np.zeros(2)
    for _ in range(MOST_STEPS):
        expected = 1.0 / (1.0 + np.exp(-(offset + features @ found)))
        pull = features.T @ (weight * (score - expected)) - prior @ found
        precision = (features.T * (weight * expected * (1.0 - expected))) @ features + prior
        step = np.linalg.solve(precision, pull)
        found += step / max(1.0, float(np.linalg.norm(step)))
        if float(np.abs(step).max()) < 1e-9:
            break
    level, slope = found.tolist()
    return round(level, 6), round(slope, 6)
