"""What a deployment's own labels add: linear corrections in its domain, on top of the frozen traits."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from classifier.artefact import Artefact
from classifier.encoder import LIMIT

Values = NDArray[np.floating[Any]]
LOWEST, HIGHEST = 0.001, 0.999


@dataclass(frozen=True, slots=True)
class Adaptation:
    """Column 0 of `weights` predicts difficulty, the others each of `models`; rows are score, vector, constant.

    `noise` is the variance in logits that is left in the domain, in place of the one over unseen sources.
    """

    models: tuple[str, ...]
    centre: Values
    spread: Values
    weights: Values
    noise: float

    def design(self, score: float, vector: Values) -> Values:
        """The score of the frozen model and the vector in the domain's own units, with a constant."""
        row = np.empty(len(vector) + 2, dtype=np.float32)
        row[0] = score
        row[1:-1] = vector
        row[:-1] = np.minimum(np.maximum((row[:-1] - self.centre) / self.spread, -LIMIT), LIMIT)
        row[-1] = 1.0
        return row

    def apply(self, score: float, vector: Values) -> tuple[float, dict[str, float]]:
        """Difficulty and every labelled model's quality, as linear probabilities within (0, 1)."""
        found = np.minimum(np.maximum(self.design(score, vector) @ self.weights, LOWEST), HIGHEST).tolist()
        return found[0], dict(zip(self.models, found[1:], strict=True))

    def predict(self, scores: Values, vectors: Values) -> Values:
        """Unclipped predictions of many prompts, one a row: difficulty, then each model."""
        return np.array([self.design(*row) for row in zip(scores.tolist(), vectors, strict=True)]) @ self.weights


def read_adaptation(artefact: Artefact) -> Adaptation | None:
    """The adaptation of an adapted artefact; None of any other."""
    facts = artefact.facts.get("adaptation")
    if facts is None:
        return None
    tensors = artefact.tensors
    return Adaptation(
        tuple(facts["models"]),
        tensors["domain_centre"],
        tensors["domain_spread"],
        tensors["domain_weights"],
        float(facts["noise"]),
    )
