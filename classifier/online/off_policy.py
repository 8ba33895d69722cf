"""What another policy would have earned on logged traffic: a doubly robust estimate with an interval."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Logged:
    """One past request: which model answered, with what probability, and how well; `predicted` for each candidate.
    `share` is its weight in the mean, relative to the others."""

    model: str
    propensity: float
    reward: float
    predicted: Mapping[str, float]
    share: float = 1.0


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
        rows.append(_Row(direct, weight, entry.predicted[entry.model], entry.reward, entry.share))
    return _interval(rows)


def mean_with_error(values: Sequence[float], shares: Sequence[float]) -> tuple[float, float]:
    """A weighted mean, and half of its 95 % interval's width."""
    size, whole = len(values), math.fsum(shares)
    mean = math.fsum(share * value for share, value in zip(shares, values, strict=True)) / whole
    squares = math.fsum((share * (value - mean)) ** 2 for share, value in zip(shares, values, strict=True))
    return mean, 1.96 * math.sqrt(squares * size / (size - 1)) / whole


class _Row(NamedTuple):
    direct: float
    weight: float
    predicted: float
    reward: float
    share: float

    @property
    def value(self) -> float:
        return self.direct + self.weight * (self.reward - self.predicted)


def _interval(rows: Sequence[_Row]) -> Estimate:
    """Like Agresti and Coull's for a share: computed with one perfect and one useless answer more on each side, because
    a few answers that all happened to be good do not show their spread."""
    more = [*rows, *_extremes(rows, 1), *_extremes(rows, -1)]
    center, half = mean_with_error([row.value for row in more], [row.share for row in more])
    mean, _ = mean_with_error([row.value for row in rows], [row.share for row in rows])
    weights = [row.share * row.weight for row in rows]
    squares = math.fsum(weight * weight for weight in weights)
    effective = math.fsum(weights) ** 2 / squares if squares else 0.0
    return Estimate(mean, center - half, center + half, effective)


def _extremes(rows: Sequence[_Row], sign: int) -> list[_Row]:
    """The best and the worst possible answer to the request whose answer weighs most in that direction."""
    found = [row for row in rows if row.weight * sign > 0]
    heaviest = max(found, key=lambda row: row.share * row.weight * sign, default=None)
    return [] if heaviest is None else [heaviest._replace(reward=reward) for reward in (1.0, 0.0)]
