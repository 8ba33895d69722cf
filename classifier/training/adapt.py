"""In-domain adaptation: a few hundred graded prompts of the deployment bend the frozen artefact to its traffic."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from classifier.adaptation import Adaptation
from classifier.artefact import Artefact, read_artefact, write_artefact
from classifier.encoder import HAND, LIMIT
from classifier.features import FEATURE_NAMES
from classifier.load import SHIPPED, build_encoder, build_traits
from classifier.names import canonical
from classifier.training.corpus import CorpusError, Matrix, mean_known, quality_gap, read_rows

MIN_LABELS = 30


# What labels of one domain can settle soonest: how much there is to read and to count.
PLAIN = ("log_characters", "log_stem_words", "log_sentences", "log_numbers", "log_option_words")


@dataclass(frozen=True, slots=True)
class Penalties:
    """Ridge penalties of the correction; chosen by leave-one-source-out learning curves (docs/decisions)."""

    score: float = 10.0
    plain: float = 100.0
    hand: float = 4000.0
    pooled: float = 10_000.0

    def diagonal(self, size: int) -> Matrix:
        hand = [self.plain if name in PLAIN else self.hand for name in FEATURE_NAMES]
        return np.r_[self.score, hand, np.full(size - HAND - 1, self.pooled)]


def fit_adaptation(
    scores: Matrix, vectors: Matrix, outcomes: Matrix, models: Sequence[str], penalties: Penalties | None = None
) -> Adaptation:
    """`scores` and `vectors` are the frozen artefact's for each prompt; `outcomes` prompts by models, NaN unknown."""
    design = np.c_[scores, vectors]
    centre, spread = design.mean(axis=0), design.std(axis=0)
    spread[1 + HAND :] = np.sqrt((spread[1 + HAND :] ** 2).mean())
    spread = np.where(spread > 1e-3, spread, 1.0)
    rows = np.clip((design - centre) / spread, -LIMIT, LIMIT)
    failure = 1.0 - mean_known(outcomes)
    gap = quality_gap(outcomes) if outcomes.shape[1] > 1 else np.zeros(len(outcomes))
    hard = _ranked_as_failure(failure + gap, failure)
    penalty = (penalties or Penalties()).diagonal(rows.shape[1])
    targets = [hard, *outcomes.T]
    weights = np.array([_solve(rows, target, penalty) for target in targets]).T
    return Adaptation(
        tuple(models),
        centre.astype(np.float32),
        spread.astype(np.float32),
        weights.astype(np.float32),
        noise=4.0 / math.sqrt(len(scores)),
    )


def adapt(labels: Path, out: Path, *, base: Path | None = None) -> str:
    """Write the base artefact (the shipped one when not given) bent to the labels. Raises CorpusError."""
    artefact = read_artefact(base or SHIPPED)
    rows = read_rows(labels)
    models = sorted({canonical(name) for row in rows for name in row["scores"]})
    if len(rows) < MIN_LABELS or not models:
        raise CorpusError(f"{labels} holds {len(rows)} graded prompts; adaptation needs at least {MIN_LABELS}")
    column = {name: number for number, name in enumerate(models)}
    outcomes = np.full((len(rows), len(models)), np.nan)
    for number, row in enumerate(rows):
        for name, value in row["scores"].items():
            outcomes[number, column[canonical(name)]] = _share(value, labels, number + 1)
    with threadpool_limits(limits=1):  # the same bits on every run
        scores, vectors = frozen_view(artefact, [row["prompt"] for row in rows])
        adaptation = fit_adaptation(scores, vectors, outcomes, models)
    tensors = dict(artefact.tensors)
    tensors |= {
        "domain_centre": adaptation.centre,
        "domain_spread": adaptation.spread,
        "domain_weights": adaptation.weights,
    }
    facts: dict[str, Any] = {
        "provenance": artefact.facts["provenance"],
        "model": artefact.facts["model"],
        "adaptation": {
            "models": models,
            "noise": adaptation.noise,
            "labels": len(rows),
            "labels_sha256": hashlib.sha256(labels.read_bytes()).hexdigest(),
            "base_sha256": artefact.sha256,
        },
    }
    return write_artefact(out, tensors, artefact.pieces, facts)


def frozen_view(artefact: Artefact, prompts: Sequence[str]) -> tuple[Matrix, Matrix]:
    """Each prompt's combined trait score and its standardised vector, exactly as the data path computes them."""
    encoder, traits = build_encoder(artefact), build_traits(artefact)
    vectors = np.array([encoder.encode(prompt) for prompt in prompts], dtype=np.float64)
    theta = vectors @ traits.weights
    return (1.0 - traits.level_share) * theta[:, 0] + traits.level_share * theta[:, 1], vectors


def _solve(rows: Matrix, targets: Matrix, penalty: Matrix) -> Matrix:
    """Ridge on the known targets with a free constant, which is the last coefficient."""
    known = np.isfinite(targets)
    mean = rows[known].mean(axis=0)
    inner, level = rows[known] - mean, float(targets[known].mean())
    beta = np.linalg.solve(inner.T @ inner + np.diag(penalty), inner.T @ (targets[known] - level))
    return np.r_[beta, level - mean @ beta]


def _ranked_as_failure(targets: Matrix, failure: Matrix) -> Matrix:
    """The targets with the mean and spread of the failure shares: a difficulty stays a share."""
    size = float(targets.std())
    return failure.mean() + (targets - targets.mean()) * (float(failure.std()) / size if size > 0 else 0.0)


def _share(value: object, path: Path, line: int) -> float:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
        raise CorpusError(f"{path}:{line} has a score of {value!r}; scores are between 0 and 1")
    return float(value)
