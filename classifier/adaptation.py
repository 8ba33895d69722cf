"""What a deployment's own labels add: linear corrections in its domain, on top of the frozen traits."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from classifier.artefact import Artefact
from classifier.encoder import LIMIT, Pieces

Values = NDArray[np.floating[Any]]
ROOM = 0.05


@dataclass(frozen=True, slots=True)
class Adaptation:
    """Column 0 of `weights` predicts difficulty, the others each of `models`; rows are score, vector, constant.

    `piece_weights` adds what single word pieces say, in the same columns: a prompt's pieces are weighed by
    `piece_rarity` (0 for those that the labels do not know) and scaled to length 1.
    `noise` is the variance in logits that is left in the domain, in place of the one over unseen sources.
    """

    models: tuple[str, ...]
    centre: Values
    spread: Values
    weights: Values
    piece_rarity: Values
    piece_weights: Values
    noise: float

    def design(self, score: float, vector: Values) -> Values:
        """The score of the frozen model and the vector in the domain's own units, with a constant."""
        row = np.empty(len(vector) + 2, dtype=np.float32)
        row[0] = score
        row[1:-1] = vector
        row[:-1] = np.minimum(np.maximum((row[:-1] - self.centre) / self.spread, -LIMIT), LIMIT)
        row[-1] = 1.0
        return row

    def apply(self, score: float, vector: Values, pieces: Pieces) -> tuple[float, dict[str, float]]:
        """Difficulty and every labelled model's quality, as linear probabilities within (0, 1)."""
        found = _within_bounds(self.predict(score, vector, pieces)).tolist()
        return found[0], dict(zip(self.models, found[1:], strict=True))

    def predict(self, score: float, vector: Values, pieces: Pieces) -> Values:
        """Unclipped: difficulty, then each model."""
        found = self.design(score, vector) @ self.weights
        weighed = pieces.weights * self.piece_rarity[pieces.ids]
        size = float(np.sqrt(weighed @ weighed))
        return found + (weighed / size) @ self.piece_weights[pieces.ids] if size > 0.0 else found


def _within_bounds(linear: Values) -> Values:
    """Shares in (0, 1): as they are between 0.05 and 0.95, bent beyond so that no two become equal."""
    far = np.minimum(np.maximum(ROOM - linear, linear - (1.0 - ROOM)), 30.0 * ROOM)
    edge = ROOM * np.exp(-np.maximum(far, 0.0) / ROOM)
    return np.where(far <= 0.0, linear, np.where(linear < 0.5, edge, 1.0 - edge))


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
        tensors["domain_piece_rarity"],
        tensors["domain_piece_weights"],
        float(facts["noise"]),
    )
