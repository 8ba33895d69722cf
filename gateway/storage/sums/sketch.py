"""Mergeable histograms of positive numbers with logarithmic buckets: any percentile within 2 % of its value. Pure.

A sketch is bytes: six per bucket, its index and its count. Joining two byte strings merges two sketches; `merged`
adds up equal buckets. Without numpy, for the child that writes rows; `joined_sketches.py` has what needs it.
"""

import math
import struct
from collections.abc import Iterable
from itertools import starmap

GROWTH = 1.04  # neighbouring bucket bounds; the middle of a bucket is within 2 % of everything in it
LOG_GROWTH = math.log(GROWTH)
LEAST = 1e-6
ONE = struct.Struct("<hI")


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


def _encode(counts: dict[int, int]) -> bytes:
    return b"".join(starmap(ONE.pack, sorted(counts.items())))
