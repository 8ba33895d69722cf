"""The difficulty score: a Bayesian ridge around a hand-written prior, on targets centred within their source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from classifier.encoder import HAND, LIMIT
from classifier.features import FEATURE_NAMES
from classifier.training.corpus import Matrix

# Effect on difficulty of one unit of a raw feature, before any data: written down from general knowledge of what
# language models find hard, tuned on no benchmark. The data then move it (see docs/classifier.md).
PRIOR: Mapping[str, float] = {
    "log_characters": 0.35,
    "log_stem_words": 0.3,
    "log_option_words": -0.15,
    "log_numbers": 0.15,
    "log_distinct_numbers": 0.15,
    "log_backslashes": 0.15,
    "log_operators": 0.1,
    "log_sentences": 0.1,
    "rarity": 0.1,
    "has_code": 0.3,
    "do_prove": 0.4,
    "do_solve": 0.25,
    "do_code": 0.2,
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
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """The numbers that were chosen by leave-one-source-out (docs/decisions)."""

    hand_penalty: float = 3000.0
    pooled_penalty: float = 3000.0
    prior_share: float = 0.5
    seed_weight: float = 2.0
    unit_exponent: float = 0.5
    level_share: float = 0.3


@dataclass(frozen=True, slots=True)
class Sample:
    """Raw vectors with targets, and for each row the unit within which both are centred and its weight."""

    vectors: Matrix
    targets: Matrix
    units: Sequence[str]
    weights: Matrix


@dataclass(frozen=True, slots=True)
class Ridge:
    """`score = standardise(x) @ weights`, of unit spread on its training sample; `covariance` is of the weights."""

    centre: Matrix
    spread: Matrix
    weights: Matrix
    covariance: Matrix

    def standardise(self, vectors: Matrix) -> Matrix:
        return np.clip((vectors - self.centre) / self.spread, -LIMIT, LIMIT)

    def score(self, vectors: Matrix) -> Matrix:
        return self.standardise(vectors) @ self.weights


def standardisation(vectors: Matrix) -> tuple[Matrix, Matrix]:
    """Hand features each by its own spread; pooled dimensions by their common one, which keeps the large ones large."""
    centre, spread = vectors.mean(axis=0), vectors.std(axis=0)
    spread[HAND:] = np.sqrt((spread[HAND:] ** 2).mean()) if vectors.shape[1] > HAND else 1.0
    return centre, np.where(spread > 1e-6, spread, 1.0)


def unit_weights(units: Sequence[str], exponent: float) -> Matrix:
    """Large sources weigh more than small ones, but less than in proportion."""
    _, inverse, counts = np.unique(np.array(units), return_inverse=True, return_counts=True)
    weights = counts[inverse] ** -exponent
    return weights / weights.mean()


def centre_within(values: Matrix, units: Sequence[str]) -> Matrix:
    """Values less their unit's mean."""
    _, inverse, counts = np.unique(np.array(units), return_inverse=True, return_counts=True)
    rows = values.reshape(len(values), -1)
    means = np.zeros((len(counts), rows.shape[1]))
    np.add.at(means, inverse, rows)
    return (rows - (means / counts[:, None])[inverse]).reshape(values.shape)


def fit_ridge(sample: Sample, recipe: Recipe) -> Ridge:
    """Solve for the weights around the prior; scores are rescaled to unit spread."""
    centre, spread = standardisation(sample.vectors)
    rows = np.clip((sample.vectors - centre) / spread, -LIMIT, LIMIT)
    inner, targets = centre_within(rows, sample.units), centre_within(sample.targets, sample.units)
    prior = prior_weights(spread, inner, targets, recipe.prior_share)
    weighted = inner * sample.weights[:, None]
    penalty = np.full(rows.shape[1], recipe.pooled_penalty)
    penalty[:HAND] = recipe.hand_penalty
    precision = weighted.T @ inner + np.diag(penalty)
    weights = prior + np.linalg.solve(precision, weighted.T @ (targets - inner @ prior))
    noise = float(np.average((targets - inner @ weights) ** 2, weights=sample.weights))
    size = float((rows @ weights).std()) or 1.0
    return Ridge(
        centre, spread, weights / size, np.asarray(np.linalg.inv(precision) * noise / size**2, dtype=np.float64)
    )


def prior_weights(spread: Matrix, inner: Matrix, targets: Matrix, share: float) -> Matrix:
    """The hand-written effects in standardised units, scaled to that share of the targets' spread."""
    prior = np.zeros(inner.shape[1])
    prior[:HAND] = [PRIOR.get(name, 0.0) for name in FEATURE_NAMES]
    prior *= spread
    size = float((inner @ prior).std())
    return prior * (share * float(targets.std()) / size) if size > 0 else prior
