"""Mergeable histograms of positive numbers with logarithmic buckets: any percentile within 2 % of its value. Pure.

A sketch is bytes: six per bucket, its index and its count. Joining two byte strings merges two sketches; `merged`
adds up equal buckets.
"""

import math
import struct
from collections.abc import Iterable
from itertools import starmap
from typing import Any

import numpy as np

GROWTH = 1.04  # neighbouring bucket bounds; the middle of a bucket is within 2 % of everything in it
LOG_GROWTH = math.log(GROWTH)
LEAST = 1e-6
# The same six bytes for `struct`: sketches of a batch are too small for numpy to be faster.
ONE = struct.Struct("<hI")
BUCKET = np.dtype([("index", "<i2"), ("count", "<u4")])
MOST_COUNT = 2**32 - 1
LONG_BYTES = 1 << 16


def sketch(values: Iterable[float]) -> bytes:
    """A sketch of these values; zero and below count as LEAST."""
    counts: dict[int, int] = {}
    for value in values:
        index = math.ceil(math.log(max(value, LEAST)) / LOG_GROWTH)
        counts[index] = counts.get(index, 0) + 1
    return _encode(counts)


def merged(whole: bytes, part: bytes) -> bytes:
    """Merges two sketches so that each bucket occurs once, in order, as already in `whole`."""
    counts = dict(ONE.iter_unpack(whole))
    for index, times in ONE.iter_unpack(part):
        counts[index] = counts.get(index, 0) + times
    return _encode(counts)


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


def _encode(counts: dict[int, int]) -> bytes:
    return b"".join(starmap(ONE.pack, sorted(counts.items())))


def count(joined: bytes) -> int:
    """The number of values in a sketch."""
    return int(np.frombuffer(joined, BUCKET)["count"].sum(dtype=np.int64))


def percentile(joined: bytes, share: float) -> float | None:
    """The smallest value that at least `share` (0 to 1) of all are at or below; None for an empty sketch."""
    if not joined:
        return None
    lowest, counts = _counts(joined)
    reached = np.cumsum(counts)
    place = int(np.searchsorted(reached, max(1, math.ceil(share * int(reached[-1])))))
    upper = GROWTH ** (lowest + place)
    return upper * 2 / (1 + GROWTH)
