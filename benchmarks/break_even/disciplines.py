"""What one fleet saves under three disciplines: a fluid bound, a queue in front, or instant overflow to a hosted model.

A queue that keeps its latency promise must turn traffic away long before the GPU is full; overflow only gives away
what arrives while every slot is taken.
"""

import numpy as np

from benchmarks.overflow.waiting_line import largest_arrival_rate
from gateway.economics.load_duration import Load
from gateway.economics.overflow import served_value_usd_by_bin


def fluid_saving_usd(load: Load, usd_per_replica_hour: float, replicas: int) -> float:
    """The upper bound: traffic as a fluid, without randomness."""
    return float(served_value_usd_by_bin(load, replicas, None).sum()) - _rent_usd(load, usd_per_replica_hour, replicas)


def overflow_saving_usd(load: Load, usd_per_replica_hour: float, replicas: int, *, slots_per_replica: int) -> float:
    """A request that finds no free slot is hosted at once; nobody waits."""
    served = served_value_usd_by_bin(load, replicas, slots_per_replica)
    return float(served.sum()) - _rent_usd(load, usd_per_replica_hour, replicas)


def queue_saving_usd(
    load: Load, usd_per_replica_hour: float, replicas: int, *, slots_per_replica: int, wait_seconds: float
) -> float:
    """Requests wait in line; only as many are admitted as keep 95 % of the waits within `wait_seconds`."""
    different, which = np.unique(load.gpu_seconds_per_request, return_inverse=True)
    limits = [
        largest_arrival_rate(replicas * slots_per_replica, gpu_seconds * slots_per_replica, wait_seconds)
        for gpu_seconds in different.tolist()
    ]
    admitted = np.minimum(load.requests_per_second, np.array(limits)[which])
    saved = float((load.hours * 3600.0 * admitted * load.value_usd_per_request).sum())
    return saved - _rent_usd(load, usd_per_replica_hour, replicas)


def _rent_usd(load: Load, usd_per_replica_hour: float, replicas: int) -> float:
    return replicas * usd_per_replica_hour * load.total_hours
