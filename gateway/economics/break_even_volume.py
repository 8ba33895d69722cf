"""The volume at which owning begins to pay, at the observed request mix and daily profile."""

import math
from dataclasses import replace

from gateway.economics.crossings import hybrid_from_scale, self_hosted_intervals
from gateway.economics.demand import Demand
from gateway.economics.dollars import to_usd
from gateway.economics.report import BreakEvenVolume, Volume, VolumeInterval
from gateway.economics.sensitivity import Case
from gateway.economics.traffic import GpuPlan

LARGEST_FLEET_TRIED = 200


def find_volume(case: Case, plan: GpuPlan, demand: Demand) -> BreakEvenVolume:
    """Where owning begins to pay, both alongside the hosted model and instead of it."""
    load = case.load
    fixed = case.fixed_usd_per_month / case.month_factor
    per_day = demand.requests / load.total_hours * 24

    def volume(scale: float) -> Volume:
        return Volume(scale * per_day, to_usd(scale * case.hosted_usd_per_month))

    scale, replicas = _least_hybrid_scale(case, plan)
    intervals = self_hosted_intervals(load, case.usd_per_replica_hour, fixed_usd=fixed)
    return BreakEvenVolume(
        hybrid=None if scale == math.inf else volume(scale),
        hybrid_replicas=None if scale == math.inf else replicas,
        self_hosted=tuple(
            VolumeInterval(volume(item.start), None if item.end == math.inf else volume(item.end)) for item in intervals
        ),
    )


def _least_hybrid_scale(case: Case, plan: GpuPlan) -> tuple[float, int]:
    """One replica has the lowest rent, but high fixed costs can need several: try larger fleets until it worsens."""
    best, best_count, worse = math.inf, 0, 0
    fixed = case.fixed_usd_per_month / case.month_factor
    if not _can_a_full_replica_pay(case):
        return math.inf, 0
    for count in range(max(1, plan.min_replicas), LARGEST_FLEET_TRIED):
        scale = hybrid_from_scale(case.load, case.usd_per_replica_hour, count, fixed_usd=fixed)
        if scale < best:
            best, best_count, worse = scale, count, 0
        elif best < math.inf:
            worse += 1
        if worse == 3:
            break
    if best < math.inf and case.slots_per_replica is not None:
        best = _scale_with_overflow(replace(case, replicas=best_count), best)
    return best, best_count


def _can_a_full_replica_pay(case: Case) -> bool:
    """Whether a replica that is full in every hour with traffic earns its rent; if not, no fleet at any volume does."""
    busy = case.load.busy_replicas
    seen = busy > 0
    most = float((case.load.value_usd_by_bin[seen] / busy[seen]).sum())
    return most > case.usd_per_replica_hour * case.load.total_hours


def _scale_with_overflow(case: Case, fluid_scale: float) -> float:
    """Random arrivals need a little more volume than the fluid bound. No saving even at 1000 times it means never."""
    low, high = fluid_scale, fluid_scale * 1000
    if replace(case, load=case.load.scaled(high)).saving_usd_per_month < 0:
        return math.inf
    for _ in range(50):
        middle = math.sqrt(low * high)
        if replace(case, load=case.load.scaled(middle)).saving_usd_per_month < 0:
            low = middle
        else:
            high = middle
    return high
