"""What outcomes taught, laid over a frozen classifier: per model a shift of its quality in logits. Pure; no clock."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from classifier.online.residual import start_residual
from classifier.protocol import Classification, Classifier, Conversation, ModelProfile, Quality

LARGEST_SHIFT = 3.0
PRIOR_DEVIATION = 1.0
"""Of each weight, in logits: what the frozen classifier was measured to be off by on a kind of prompt new to it."""
NOISE_VARIANCE = 0.2


@dataclass(frozen=True, slots=True)
class Outcome:
    """One judged answer: whose, what the frozen classifier had said, and how good it was (0 to 1)."""

    model: str
    quality: float
    difficulty: float
    score: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Correction:
    """`logit(quality) + level + slope * (difficulty - 0.5)` for each model that has shifts; the others stay."""

    shifts: Mapping[str, tuple[float, float]]

    @property
    def id(self) -> str:
        """Equal shifts, equal id."""
        return hashlib.sha256(repr(sorted(self.shifts.items())).encode()).hexdigest()[:12]

    def apply(self, model: str, quality: float, difficulty: float) -> float:
        return _sigmoid(_logit(quality) + self._shift(model, difficulty))

    def undo(self, model: str, quality: float, difficulty: float) -> float:
        """What the frozen classifier had said, from a quality that this correction made."""
        return _sigmoid(_logit(quality) - self._shift(model, difficulty))

    def _shift(self, model: str, difficulty: float) -> float:
        level, slope = self.shifts.get(model, (0.0, 0.0))
        return min(max(level + slope * (difficulty - 0.5), -LARGEST_SHIFT), LARGEST_SHIFT)


NONE = Correction({})


def learn(outcomes: Sequence[Outcome]) -> Correction:
    """The posterior mean over all outcomes, in any order; without outcomes, no correction."""
    start = start_residual(2, prior_deviation=PRIOR_DEVIATION, noise_variance=NOISE_VARIANCE)
    residuals = dict.fromkeys(sorted({one.model for one in outcomes}), start)
    for one in outcomes:
        slope = one.quality * (1.0 - one.quality)  # what a small shift in logits does to the quality
        features = slope * np.array([1.0, one.difficulty - 0.5])
        residuals[one.model] = residuals[one.model].update(features, one.quality, one.score, weight=one.weight)
    return Correction({model: _mean(residual.precision, residual.pull) for model, residual in residuals.items()})


class CorrectedClassifier:
    """Implements protocol.Classifier; its version names both, so that every decision says which correction it had."""

    def __init__(self, frozen: Classifier, correction: Correction) -> None:
        self._frozen = frozen
        self._correction = correction
        self.version = f"{frozen.version}+{correction.id}"

    def bind(self, profiles: Sequence[ModelProfile]) -> "CorrectedClassifier":
        return CorrectedClassifier(self._frozen.bind(profiles), self._correction)

    def classify(self, conversation: Conversation) -> Classification:
        found = self._frozen.classify(conversation)
        apply = self._correction.apply
        quality = {
            name: Quality(apply(name, one.mean, found.difficulty), one.deviation) for name, one in found.quality.items()
        }
        return msgspec.structs.replace(found, quality=quality)


def _mean(precision: np.ndarray, pull: np.ndarray) -> tuple[float, float]:
    level, slope = np.linalg.solve(precision, pull).tolist()
    return round(level, 6), round(slope, 6)


def _sigmoid(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-logit))


def _logit(share: float) -> float:
    share = min(max(share, 1e-4), 1.0 - 1e-4)
    return math.log(share / (1.0 - share))
