"""What a fleet serves: with instant overflow, where requests that find every slot taken go to a hosted model, or under
the fluid bound, which ignores random arrivals."""

import numpy as np

from gateway.economics.load_duration import FloatArray, Load
from gateway.economics.queueing import erlang_b_by_fleet, erlang_b_each


def blocked_share(load: Load, replicas: int, slots_per_replica: int) -> FloatArray:
    """Share of each bin's requests that find no free slot. Erlang B: exact for any length distribution."""
    return erlang_b_each(replicas * slots_per_replica, load.busy_replicas * slots_per_replica)


def served_value_usd_by_bin(load: Load, replicas: int, slots_per_replica: int | None) -> FloatArray:
    """What `replicas` save in each bin before rent: with instant overflow, or the fluid bound if slots are None."""
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
