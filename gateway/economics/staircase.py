"""How many replicas pay for themselves: one step at a time, always on or switched by the hour.

Computes the fluid bound: a replica serves everything up to its rate and the rest is hosted, with no request turned away
by a busy slot. `overflow` accounts for random arrivals.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from gateway.economics.load_duration import FloatArray, Load


def best_replicas(load: Load, usd_per_replica_hour: float) -> int:
    """n* = max{k : B_k ≥ H·T}. Fixed costs do not change it; they decide whether to start at all."""
    rent = usd_per_replica_hour * load.total_hours
    layers = range(1, replicas_for_peak(load) + 1)  # no layer is worth more than the one before it
    return bisect_left(layers, True, key=lambda layer: load.layer_value_usd(layer) < rent)


def replicas_for_peak(load: Load) -> int:
    """Replicas needed to serve every bin with nothing hosted."""
    # A peak of exactly k replicas must not become k+1 by rounding error.
    return math.ceil(load.peak_replicas * (1 - 1e-12))


@dataclass(frozen=True, slots=True)
class HourlyScaling:
    """The cheapest schedule of whole replicas. `replicas` is how many are on in each bin."""

    total_usd: float
    replicas: tuple[int, ...]


def scale_hourly(
    load: Load, usd_per_replica_hour: float, *, start_up_usd: float = 0.0, minimum: int = 0
) -> HourlyScaling:
    """The optimum over all schedules, start-up costs included; everything starts switched off.

    Each replica can be decided separately (on where its value exceeds its rent by enough to pay for starting): B_k
    never rises with k in any bin, so replica k+1 is never on while replica k is off, and the layers add up.
    """
    on = np.zeros(len(load.hours), dtype=np.int64)
    total = load.value_usd
    for layer in range(1, max(replicas_for_peak(load), minimum) + 1):
        gain = load.hours * (load.value_usd_per_layer_hour(layer) - usd_per_replica_hour)
        is_on = np.ones(len(gain), dtype=np.bool_) if layer <= minimum else _switch(gain, start_up_usd)
        if not is_on.any() and layer > minimum:
            break
        begins = int(is_on[:1].sum() + np.count_nonzero(is_on[1:] & ~is_on[:-1]))
        total += begins * start_up_usd - float(gain[is_on].sum())
        on += is_on
    return HourlyScaling(total, tuple(int(count) for count in on))


def _switch(gain_usd: FloatArray, start_up_usd: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """When one replica should be on: dynamic programming over two states, where going from off to on has a cost."""
    off, on = 0.0, -math.inf
    came_from_on: list[tuple[bool, bool]] = []
    for gain in gain_usd.tolist():
        stays, starts = on, off - start_up_usd
        came_from_on.append((on > off, stays >= starts))
        off, on = max(off, on), max(stays, starts) + gain
    is_on = np.zeros(len(gain_usd), dtype=np.bool_)
    state = on > off
    for index in range(len(gain_usd) - 1, -1, -1):
        is_on[index] = state
        state = came_from_on[index][1 if state else 0]
    return is_on
