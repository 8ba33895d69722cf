"""The volumes at which owning is cheaper: a set of intervals, as a staircase can cross a line more than once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gateway.economics.load_duration import Load


@dataclass(frozen=True, slots=True)
class Interval:
    """Volumes as multiples of the given load; `end` is infinite when owning stays cheaper."""

    start: float
    end: float


def self_hosted_intervals(
    load: Load, usd_per_replica_hour: float, *, fixed_usd: float = 0.0, largest_fleet: int = 10_000
) -> list[Interval]:
    """Where a fleet sized for its peak, with nothing hosted, is cheaper than hosting everything.

    n replicas serve the scales in ((n−1)/peak, n/peak] for the same money, so within that stretch owning is cheaper
    from (n·rent + fixed)/value on. If the slope value − rent·peak is not positive that is nowhere; otherwise all of
    it from some n on. A last interval that ends at `largest_fleet` replicas means that the search stopped there.
    """
    peak, rent = load.peak_replicas, usd_per_replica_hour * load.total_hours
    slope = load.value_usd - rent * peak
    if slope <= 0:
        return []
    first = max(1, math.floor(fixed_usd * peak / slope))
    wholly_from = max(1, math.ceil((load.value_usd + fixed_usd * peak) / slope))
    intervals: list[Interval] = []
    for replicas in range(first, min(wholly_from, largest_fleet + 1)):
        start, end = (replicas - 1) / peak, replicas / peak
        cheaper_from = max(start, (replicas * rent + fixed_usd) / load.value_usd)
        if cheaper_from < end:
            intervals.append(Interval(cheaper_from, end))
    if wholly_from <= largest_fleet:
        intervals.append(Interval((wholly_from - 1) / peak, math.inf))
    return _merge(intervals)


def hybrid_from_scale(load: Load, usd_per_replica_hour: float, replicas: int, *, fixed_usd: float = 0.0) -> float:
    """The volume from which `replicas` always on, with the rest hosted, are cheaper than hosting everything.

    One point, not a set: the saving of a fixed fleet never falls with volume. Infinity when no volume is enough.
    """
    cost = replicas * usd_per_replica_hour * load.total_hours + fixed_usd
    busy = load.busy_replicas
    seen = busy > 0
    if not seen.any():
        return math.inf
    value_per_busy = load.value_usd_by_bin[seen] / busy[seen]
    # Savings are linear between the volumes at which one more bin fills the fleet, so only those need checking. The
    # busiest bins fill first; a full bin yields its whole value, the others grow with the volume.
    order = np.argsort(-busy[seen])
    corners = replicas / busy[seen][order]
    full = np.cumsum(value_per_busy[order]) * replicas
    filling = np.cumsum((value_per_busy * busy[seen])[order])
    saved = full + (filling[-1] - filling) * corners
    if cost > saved[-1]:
        return math.inf
    return float(np.interp(cost, np.concatenate(([0.0], saved)), np.concatenate(([0.0], corners))))


def _merge(intervals: Sequence[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for interval in intervals:
        if merged and interval.start <= merged[-1].end * (1 + 1e-12):
            merged[-1] = Interval(merged[-1].start, interval.end)
        else:
            merged.append(interval)
    return merged
