"""Response curves: logistic regressions on left-out traits, each model shrunk towards its ability cluster."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from classifier.training.corpus import CorpusError, Matrix

SHRINKAGE = 200.0
MIN_PROMPTS = 200
CLUSTERS = 3


@dataclass(frozen=True, slots=True)
class FittedHead:
    """sigmoid(offset - slopes · traits); `deviation` is that of the offset, in logits."""

    offset: float
    slopes: tuple[float, float]
    deviation: float
    ability: float


def fit_logistic(traits: Matrix, outcomes: Matrix, weights: Matrix, *, centre: Matrix, shrinkage: float) -> Matrix:
    """Newton's method for (offset, slope, slope), slopes shrunk towards `centre`; outcomes are shares in [0, 1]."""
    design = np.c_[np.ones(len(traits)), -traits]
    penalty = np.diag([1e-3, shrinkage, shrinkage])
    target = np.r_[0.0, centre]
    beta = target.copy()
    for _ in range(30):
        mean = 1.0 / (1.0 + np.exp(-np.clip(design @ beta, -30, 30)))
        gradient = design.T @ (weights * (outcomes - mean)) - penalty @ (beta - target)
        hessian = (design * (weights * mean * (1.0 - mean))[:, None]).T @ design + penalty
        step = np.linalg.solve(hessian, gradient)
        beta = beta + np.clip(step, -2.0, 2.0)
        if float(np.abs(step).max()) < 1e-9:
            break
    return beta


def fit_heads(
    traits: Matrix, scores: Matrix, weights: Matrix, reference: Matrix
) -> tuple[dict[int, FittedHead], list[list[float]]]:
    """A head for every model with enough prompts, and the (ability, slope, slope) knots of the three clusters. Raises
    CorpusError for too few models."""
    models = [model for model in range(scores.shape[1]) if np.isfinite(scores[:, model]).sum() >= MIN_PROMPTS]
    if len(models) < CLUSTERS:
        raise CorpusError(
            f"training needs {CLUSTERS} models with {MIN_PROMPTS} graded prompts each, and there are {len(models)}"
        )
    rough = {model: _fit(traits, scores[:, model], weights, np.array([0.5, 0.5]), SHRINKAGE) for model in models}
    ability = {model: mean_quality(rough[model], reference) for model in models}
    clusters = np.array_split(sorted(models, key=lambda model: ability[model]), CLUSTERS)
    knots: list[list[float]] = []
    heads: dict[int, FittedHead] = {}
    for cluster in clusters:
        pooled = np.maximum(_pooled_slopes(traits, scores, weights, [int(model) for model in cluster]), 0.05)
        knots.append([float(np.mean([ability[int(model)] for model in cluster])), *pooled.tolist()])
        for model in map(int, cluster):
            beta = _fit(traits, scores[:, model], weights, pooled, SHRINKAGE)
            heads[model] = FittedHead(
                float(beta[0]),
                (float(max(beta[1], 0.0)), float(max(beta[2], 0.0))),
                0.15,
                mean_quality(beta, reference),
            )
    return heads, knots


def mean_quality(beta: Matrix, reference: Matrix) -> float:
    """Mean response over the reference traits."""
    return float(np.mean(1.0 / (1.0 + np.exp(-(beta[0] - reference @ beta[1:])))))


def _fit(traits: Matrix, outcomes: Matrix, weights: Matrix, centre: Matrix, shrinkage: float) -> Matrix:
    known = np.isfinite(outcomes)
    return fit_logistic(traits[known], outcomes[known], weights[known], centre=centre, shrinkage=shrinkage)


def _pooled_slopes(traits: Matrix, scores: Matrix, weights: Matrix, cluster: Sequence[int]) -> Matrix:
    """Mean slopes of the cluster's models, each fitted with weak shrinkage."""
    betas = [_fit(traits, scores[:, model], weights, np.array([0.5, 0.5]), 20.0) for model in cluster]
    return np.mean(betas, axis=0)[1:]
