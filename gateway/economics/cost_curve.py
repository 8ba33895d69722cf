"""Monthly bills by volume, for a chart: everything hosted, and with the cheapest fleet alongside. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gateway.economics.bootstrap import resample_clusters, spread
from gateway.economics.demand import Demand
from gateway.economics.overflow import served_value_usd_by_bin
from gateway.economics.sensitivity import Case
from gateway.economics.staircase import best_replicas
from gateway.economics.traffic import Period

RESAMPLES = 400


@dataclass(frozen=True, slots=True)
class CostPoint:
    """Bills of one month at a volume. The interval is 5 % to 95 % over resampled days; None with fewer than two."""

    requests_per_day: float
    hosted_usd: float
    owned_usd: float
    owned_low_usd: float | None
    owned_high_usd: float | None
    replicas: int


def cost_curve(
    demand: Demand, case: Case, period: Period, *, scales: Sequence[float], generator: np.random.Generator
) -> list[CostPoint]:
    """One point per scale, each a multiple of the demand, at the observed mix and daily profile. At least one replica
    is kept."""
    per_day = demand.requests / period.hours * 24
    return [_point(case, scale, per_day, demand.day_of_hour, generator) for scale in scales]


def _point(
    case: Case,
    scale: float,
    per_day: float,
    days: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    generator: np.random.Generator,
) -> CostPoint:
    load = case.load.scaled(scale)
    replicas = max(1, best_replicas(load, case.usd_per_replica_hour))
    scaled = replace(case, load=load, hosted_usd=case.hosted_usd * scale, replicas=replicas)
    hosted = scaled.hosted_usd_per_month
    served = served_value_usd_by_bin(load, replicas, case.slots_per_replica)
    owned = hosted - scaled.saving_usd(float(served.sum()))
    low = high = None
    if (seen := len(set(days.tolist()))) >= 2:
        unserved_value = load.value_usd_by_bin - served
        drawn = resample_clusters(np.stack([unserved_value, load.hours], axis=1), days, generator, resamples=RESAMPLES)
        kept = owned - float(unserved_value.sum()) * scaled.month_factor
        found = spread(drawn[:, 0] / drawn[:, 1] * case.hours_per_month + kept, seen)
        low, high = found.low, found.high
    return CostPoint(scale * per_day, hosted, owned, low, high, replicas)
