"""What another policy would have earned on logged traffic: a doubly robust estimate with an interval."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


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
    rows: list[_Row] = []
    for entry in log:
        if not 0.0 < entry.propensity <= 1.0:
            raise ValueError(f"a logged propensity of {entry.propensity} is not in (0, 1]")
        chances = policy(entry)
        direct = sum(chance * entry.predicted[model] for model, chance in chances.items())
        weight = chances.get(entry.model, 0.0) / entry.propensity
        rows.append(_Row(direct, weight, entry.predicted[entry.model], entry.reward))
    return _interval(rows)


class _Row(NamedTuple):
    direct: float
    weight: float
    predicted: float
    reward: float

    @property
    def value(self) -> float:
        return self.direct + self.weight * (self.reward - self.predicted)


def _interval(rows: Sequence[_Row]) -> Estimate:
    """Like Agresti and Coull's for a share: computed with one perfect and one useless answer more on each side, because
    a few answers that all happened to be good do not show their spread."""
    size = len(rows)
    values = [row.value for row in [*rows, *_extremes(rows, 1), *_extremes(rows, -1)]]
    center = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - center) ** 2 for value in values) / (len(values) - 1))
    half = 1.96 * deviation / math.sqrt(len(values))
    weights = [row.weight for row in rows]
    squares = math.fsum(weight * weight for weight in weights)
    effective = math.fsum(weights) ** 2 / squares if squares else 0.0
    mean = math.fsum(row.value for row in rows) / size
    return Estimate(mean, center - half, center + half, effective)


def _extremes(rows: Sequence[_Row], sign: int) -> list[_Row]:
    """The best and the worst possible answer to the request whose answer weighs most in that direction."""
    found = [row for row in rows if row.weight * sign > 0]
    heaviest = max(found, key=lambda row: row.weight * sign, default=None)
    return [] if heaviest is None else [heaviest._replace(reward=reward) for reward in (1.0, 0.0)]
