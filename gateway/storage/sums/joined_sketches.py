"""Grows and reads joined sketches, which may be long. Pure."""

import math
from typing import Any

import numpy as np

from gateway.storage.sums.sketch import GROWTH

BUCKET = np.dtype([("index", "<i2"), ("count", "<u4")])
"""The bytes of `gateway.storage.sums.sketch.ONE`."""
MOST_COUNT = 2**32 - 1
LONG_BYTES = 1 << 16


def grow(whole: bytearray, part: bytes) -> None:
    """Appends `part`, and adds up equal buckets once there are many."""
    whole += part
    if len(whole) > LONG_BYTES:
        whole[:] = _added_up(bytes(whole))


def _added_up(joined: bytes) -> bytes:
    lowest, counts = _counts(joined)
    kept = np.flatnonzero(counts)
    found = np.empty(len(kept), BUCKET)
    found["index"], found["count"] = kept + lowest, np.minimum(counts[kept], MOST_COUNT)
    return found.tobytes()


def _counts(joined: bytes) -> tuple[int, Any]:
    """(lowest index, counts of it and of each index above)."""
    buckets = np.frombuffer(joined, BUCKET)
    lowest = int(buckets["index"].min())
    return lowest, np.bincount(buckets["index"].astype(np.int64) - lowest, weights=buckets["count"])


def percentile(joined: bytes, share: float) -> float | None:
    """The smallest value that at least `share` (0 to 1) of all are at or below; None for an empty sketch."""
    if not joined:
        return None
    lowest, counts = _counts(joined)
    reached = np.cumsum(counts)
    place = int(np.searchsorted(reached, max(1, math.ceil(share * int(reached[-1])))))
    upper = GROWTH ** (lowest + place)
    return upper * 2 / (1 + GROWTH)
