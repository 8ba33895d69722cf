"""What callers would have thought of answers under other rules, from feedback on the answers they did get.

Exploration makes it possible: a request that the new rules would have sent where it went anyway stands for all those
like it, weighted by how unlikely it was to go there. Without exploration there is nothing to weigh by.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gateway.economics.errors import NotMeasured

LEAST_EFFECTIVE = 30.0
"""Below this many effective observations the normal interval means nothing."""


class Rated(NamedTuple):
    """One logged request with feedback: was it sent where the new rules would send it, with what propensity then?"""

    agrees: bool
    propensity: float
    outcome: float


@dataclass(frozen=True, slots=True)
class OffPolicyEstimate:
    """Self-normalised inverse-propensity mean with its 90 % interval; `effective` observations carry it."""

    mean: float
    low: float
    high: float
    effective: float
    observations: int

    @property
    def is_enough(self) -> bool:
        return self.effective >= LEAST_EFFECTIVE


def estimate_outcome(rated: Iterable[Rated], *, largest_weight: float = 50.0) -> OffPolicyEstimate:
    """Mean outcome under the new rules. Weights are capped: a propensity of 1/1000 must not decide alone.

    Raises NotMeasured when no logged request went where the new rules would send it, or a propensity is not in (0, 1].
    """
    weights: list[float] = []
    outcomes: list[float] = []
    seen = 0
    for one in rated:
        seen += 1
        if not 0.0 < one.propensity <= 1.0:
            raise NotMeasured(f"a propensity of {one.propensity} was logged; it must be above 0 and at most 1")
        if one.agrees:
            weights.append(min(1.0 / one.propensity, largest_weight))
            outcomes.append(one.outcome)
    if not weights:
        raise NotMeasured(f"none of {seen} rated requests went where the new rules would send it: explore first")
    total = math.fsum(weights)
    mean = math.fsum(weight * outcome for weight, outcome in zip(weights, outcomes, strict=True)) / total
    squares = math.fsum((weight * (outcome - mean)) ** 2 for weight, outcome in zip(weights, outcomes, strict=True))
    half = 1.645 * math.sqrt(squares) / total
    effective = total**2 / math.fsum(weight**2 for weight in weights)
    return OffPolicyEstimate(mean, mean - half, mean + half, effective, seen)
