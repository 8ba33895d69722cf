"""What one fleet saves under three disciplines: a fluid bound, a queue in front, or instant overflow to a hosted model.

A queue that keeps its promise must turn traffic away long before the GPU is full; overflow only gives away what
arrives while every slot is taken.
"""

import numpy as np

from gateway.economics.load_duration import FloatArray, Load
from gateway.economics.queueing import erlang_b_by_fleet, erlang_b_each, largest_arrival_rate


def blocked_share(load: Load, replicas: int, slots_per_replica: int) -> FloatArray:
    """Share of each bin's requests that find no free slot. Erlang B: exact for any length distribution."""
    return erlang_b_each(replicas * slots_per_replica, load.busy_replicas * slots_per_replica)


def served_value_usd_by_bin(load: Load, replicas: int, slots_per_replica: int | None) -> FloatArray:
    """What `replicas` save in each bin before rent: with instant overflow, or the fluid bound when slots are None."""
    if slots_per_replica is not None:
        return (1.0 - blocked_share(load, replicas, slots_per_replica)) * load.value_usd_by_bin
    busy = load.busy_replicas
    served = np.divide(np.minimum(busy, replicas), busy, out=np.zeros_like(busy), where=busy > 0)
    return served * load.value_usd_by_bin


def overflow_value_usd_by_fleet(load: Load, most_replicas: int, slots_per_replica: int) -> list[float]:
    """What 1, 2, ... replicas save before rent over all bins, with instant overflow."""
    offered, value = load.busy_replicas * slots_per_replica, load.value_usd_by_bin
    each = erlang_b_by_fleet(slots_per_replica, most_replicas, offered)
    return [float(((1.0 - blocked) * value).sum()) for blocked in each]


def fluid_saving_usd(load: Load, usd_per_replica_hour: float, replicas: int) -> float:
    """The bound that nothing reaches: as if requests were water."""
    return float(served_value_usd_by_bin(load, replicas, None).sum()) - _rent_usd(load, usd_per_replica_hour, replicas)


def overflow_saving_usd(load: Load, usd_per_replica_hour: float, replicas: int, *, slots_per_replica: int) -> float:
    """A request that finds no free slot is hosted at once; nobody waits."""
    served = served_value_usd_by_bin(load, replicas, slots_per_replica)
    return float(served.sum()) - _rent_usd(load, usd_per_replica_hour, replicas)


def queue_saving_usd(
    load: Load,
    usd_per_replica_hour: float,
    replicas: int,
    *,
    slots_per_replica: int,
    wait_seconds: float,
    quantile: float = 0.95,
) -> float:
    """Requests wait in line, and no more are admitted than keep `quantile` of the waits within `wait_seconds`."""
    different, which = np.unique(load.gpu_seconds_per_request, return_inverse=True)
    slots = replicas * slots_per_replica
    limits = [
        largest_arrival_rate(slots, gpu_seconds * slots_per_replica, wait_seconds, quantile=quantile)
        for gpu_seconds in different.tolist()
    ]
    admitted = np.minimum(load.requests_per_second, np.array(limits)[which])
    saved = float((load.hours * 3600.0 * admitted * load.value_usd_per_request).sum())
    return saved - _rent_usd(load, usd_per_replica_hour, replicas)


def _rent_usd(load: Load, usd_per_replica_hour: float, replicas: int) -> float:
    return replicas * usd_per_replica_hour * load.total_hours
