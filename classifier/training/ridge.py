"""Ridge regressions on standardised vectors, within and across sources, and prior effects written down before any
data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from classifier.encoder import HAND, LIMIT
from classifier.features import FEATURE_NAMES
from classifier.training.corpus import Matrix

# Prior effect on difficulty of one unit of a raw feature: from general knowledge of what language models find hard,
# tuned on no benchmark. The data then adjust it (see docs/classifier.md).
PRIOR: Mapping[str, float] = {
    "log_characters": 0.35,
    "log_stem_words": 0.3,
    "log_option_words": 0.5,
    "log_numbers": 0.15,
    "log_distinct_numbers": 0.15,
    "log_backslashes": 0.15,
    "log_operators": 0.1,
    "log_sentences": 0.1,
    "rarity": 0.1,
    "has_code": 0.3,
    "do_prove": 0.4,
    "do_solve": 0.25,
    "do_code": 0.4,
    "ask_quantity": 0.1,
    "condition": 0.15,
    "compare": 0.15,
    "each": 0.1,
    "constraint": 0.15,
    "logic": 0.1,
    "sequence": 0.1,
    "math": 0.3,
    "physics": 0.3,
    "chemistry": 0.25,
    "law": 0.25,
    "business": 0.05,
    "society": -0.1,
    "everyday": -0.1,
    "roleplay": -0.2,
    "greeting": -0.4,
    "do_write": -0.3,
    "do_list": -0.2,
    "ask_who": -0.2,
    "puzzle": 0.3,
    "negation": 0.15,
    "number_density": 2.0,
    "relations_in_prose": 0.1,
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Settings chosen by leave-one-source-out (docs/decisions).

    The first trait is a weighted mean of three opinions, each scaled to unit spread within sources: the judgement in
    classifier/judgement, the graded prompts, and the effects in PRIOR.
    """

    hand_penalty: float = 3000.0
    pooled_penalty: float = 3000.0
    judged_share: float = 1.0
    graded_share: float = 0.5
    prior_share: float = 0.5
    judged_hand_penalty: float = 1000.0
    judged_pooled_penalty: float = 100.0
    topic_weight: float = 3.0
    seed_weight: float = 2.0
    unit_exponent: float = 0.5
    level_share: float = 0.25


@dataclass(frozen=True, slots=True)
class Frame:
    """How raw vectors are standardised; shared by all ridges of one fit."""

    centre: Matrix
    spread: Matrix

    def standardise(self, vectors: Matrix) -> Matrix:
        return np.clip((vectors - self.centre) / self.spread, -LIMIT, LIMIT)


@dataclass(frozen=True, slots=True)
class Sample:
    """Standardised rows and targets, and per row its weight and the unit within which both are centred."""

    rows: Matrix
    targets: Matrix
    units: Sequence[str]
    weights: Matrix


@dataclass(frozen=True, slots=True)
class Ridge:
    """`score = row @ weights`; `covariance` is that of the weights."""

    weights: Matrix
    covariance: Matrix

    def scaled(self, rows: Matrix) -> "Ridge":
        """The same ranking with scores of unit spread over these rows."""
        size = float((rows @ self.weights).std()) or 1.0
        return Ridge(self.weights / size, self.covariance / size**2)


def build_frame(vectors: Matrix) -> Frame:
    """Hand-made features have their own spread; pooled dimensions share one, so that large ones stay large."""
    centre, spread = vectors.mean(axis=0), vectors.std(axis=0)
    spread[HAND:] = np.sqrt((spread[HAND:] ** 2).mean()) if vectors.shape[1] > HAND else 1.0
    return Frame(centre, np.where(spread > 1e-6, spread, 1.0))


def unit_weights(units: Sequence[str], exponent: float) -> Matrix:
    """Large sources weigh more than small ones, but less than proportionally."""
    _, inverse, counts = np.unique(np.array(units), return_inverse=True, return_counts=True)
    weights = counts[inverse] ** -exponent
    return weights / weights.mean()


def centre_within(values: Matrix, units: Sequence[str]) -> Matrix:
    """Values minus their unit's mean."""
    _, inverse, counts = np.unique(np.array(units), return_inverse=True, return_counts=True)
    rows = values.reshape(len(values), -1)
    means = np.zeros((len(counts), rows.shape[1]))
    np.add.at(means, inverse, rows)
    return (rows - (means / counts[:, None])[inverse]).reshape(values.shape)


def penalties(size: int, *, hand: float, pooled: float) -> Matrix:
    diagonal = np.full(size, pooled)
    diagonal[:HAND] = hand
    return diagonal


def fit_ridge(sample: Sample, penalty: Matrix) -> Ridge:
    """Both sides are centred within units; the covariance is the posterior's."""
    inner, targets = centre_within(sample.rows, sample.units), centre_within(sample.targets, sample.units)
    weighted = inner * sample.weights[:, None]
    precision = weighted.T @ inner + np.diag(penalty)
    weights = np.asarray(np.linalg.solve(precision, weighted.T @ targets), dtype=np.float64)
    noise = float(np.average((targets - inner @ weights) ** 2, weights=sample.weights))
    return Ridge(weights, np.asarray(np.linalg.inv(precision) * noise, dtype=np.float64))


def written_effects(frame: Frame) -> Matrix:
    """The prior effects in standardised units."""
    effects = np.zeros(len(frame.spread))
    effects[:HAND] = [PRIOR.get(name, 0.0) for name in FEATURE_NAMES]
    return effects * frame.spread
