"""A deployment's own labels applied on top of the frozen traits: linear corrections, and the influence of similar
prompts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from classifier.artefact import Artefact, ArtefactError
from classifier.encoder import LIMIT

Values = NDArray[np.floating[Any]]
ROOM = 0.05


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What labelled prompts say about similar ones: `weights` has a row per landmark. `landmarks` are already scaled by
    `scales`; `sizes` are their squared lengths."""

    scales: Values
    landmarks: Values
    sizes: Values
    weights: Values

    def predict(self, row: Values) -> Values:
        """`row` is in the domain's units; a landmark's influence is exp(-squared distance)."""
        here = row * self.scales
        far = self.sizes - 2.0 * self.landmarks.dot(here) + here.dot(here)
        return np.exp(-far).dot(self.weights)


@dataclass(frozen=True, slots=True)
class Adaptation:
    """Column 0 of `weights` predicts difficulty, the others one of `models` each; rows are score, vector, constant.
    `neighbours` adds to the same columns.

    `noises` are the variances in logits that remain in the domain, per column; they replace the one for unseen sources.
    """

    models: tuple[str, ...]
    centre: Values
    spread: Values
    weights: Values
    neighbours: Neighbours
    noises: tuple[float, ...]

    def design(self, score: float, vector: ArrayLike) -> Values:
        """The frozen model's score and the vector, standardised for the domain, plus a constant."""
        row = np.empty(len(self.centre) + 1, dtype=np.float32)
        row[0] = score
        row[1:-1] = vector
        row[:-1] = np.minimum(np.maximum((row[:-1] - self.centre) / self.spread, -LIMIT), LIMIT)
        row[-1] = 1.0
        return row

    def apply(self, score: float, vector: ArrayLike) -> tuple[float, dict[str, tuple[float, float]]]:
        """Difficulty, and every labelled model's quality with its noise; difficulty and qualities are shares in (0,
        1)."""
        found = _within_bounds(self.predict(score, vector)).tolist()
        return found[0], dict(zip(self.models, zip(found[1:], self.noises[1:], strict=True), strict=True))

    def predict(self, score: float, vector: ArrayLike) -> Values:
        """Unclipped: difficulty, then each model."""
        row = self.design(score, vector)
        return row.dot(self.weights) + self.neighbours.predict(row[1:-1])


def _within_bounds(linear: Values) -> Values:
    """Shares in (0, 1): unchanged between 0.05 and 0.95, compressed beyond so that no two become equal."""
    far = np.minimum(np.maximum(ROOM - linear, linear - (1.0 - ROOM)), 30.0 * ROOM)
    edge = ROOM * np.exp(-np.maximum(far, 0.0) / ROOM)
    return np.where(far <= 0.0, linear, np.where(linear < 0.5, edge, 1.0 - edge))


def read_adaptation(artefact: Artefact) -> Adaptation | None:
    """The artefact's adaptation, None if it has none. Raises ArtefactError for one by an older version."""
    facts = artefact.facts.get("adaptation")
    if facts is None:
        return None
    tensors = artefact.tensors
    if "domain_landmarks" not in tensors or "noises" not in facts:
        raise ArtefactError("the artefact was adapted by an older version: run `breakeven train --adapt` again")
    return Adaptation(
        tuple(facts["models"]),
        tensors["domain_centre"],
        tensors["domain_spread"],
        tensors["domain_weights"],
        Neighbours(
            tensors["domain_near_scales"],
            tensors["domain_landmarks"],
            tensors["domain_landmark_sizes"],
            tensors["domain_landmark_weights"],
        ),
        tuple(map(float, facts["noises"])),
    )


def domain_tensors(adaptation: Adaptation) -> dict[str, Values]:
    """The tensors that `read_adaptation` reads."""
    neighbours = adaptation.neighbours
    return {
        "domain_centre": adaptation.centre,
        "domain_spread": adaptation.spread,
        "domain_weights": adaptation.weights,
        "domain_near_scales": neighbours.scales,
        "domain_landmarks": neighbours.landmarks,
        "domain_landmark_sizes": neighbours.sizes,
        "domain_landmark_weights": neighbours.weights,
    }
