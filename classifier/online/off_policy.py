"""What another policy would have earned on logged traffic: a doubly robust estimate with an interval."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Logged:
    """One past request: which model answered, with what probability, and how well; `predicted` for each candidate."""

    model: str
    propensity: float
    reward: float
    predicted: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Mean reward per request with a 95 % interval; `effective` is the effective sample size."""

    mean: float
    low: float
    high: float
    effective: float


Policy = Callable[[Logged], Mapping[str, float]]
"""The probability with which a policy chooses each candidate of a request; they sum to 1."""


def doubly_robust(log: Sequence[Logged], policy: Policy) -> Estimate:
    """Unbiased if either the propensities or the predictions are right. Raises ValueError for an unusable log.

    Weights are not clipped: for rarely explored models the estimate would then equal the prediction."""
    if len(log) < 2:
        raise ValueError("off-policy evaluation needs at least two logged requests")
    values: list[float] = []
    weights: list[float] = []
    for entry in log:
        if not 0.0 < entry.propensity <= 1.0:
            raise ValueError(f"a logged propensity of {entry.propensity} is not in (0, 1]")
        chances = policy(entry)
        direct = sum(chance * entry.predicted[model] for model, chance in chances.items())
        weight = chances.get(entry.model, 0.0) / entry.propensity
        values.append(direct + weight * (entry.reward - entry.predicted[entry.model]))
        weights.append(weight)
    return _interval(values, weights)


def _interval(values: Sequence[float], weights: Sequence[float]) -> Estimate:
    size = len(values)
    mean = math.fsum(values) / size
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (size - 1))
    half = 1.96 * deviation / math.sqrt(size)
    squares = math.fsum(weight * weight for weight in weights)
    effective = math.fsum(weights) ** 2 / squares if squares else 0.0
    return Estimate(mean, mean - half, mean + half, effective)
