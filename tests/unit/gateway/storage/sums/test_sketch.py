"""Percentiles within 2 %, whatever is merged in any order."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.storage.sums.joined_sketches import BUCKET, LONG_BYTES, grow, percentile
from gateway.storage.sums.sketch import merged, sketch

values = st.lists(st.floats(1e-5, 1e6), min_size=1, max_size=200)


def count(joined: bytes) -> int:
    return int(np.frombuffer(joined, BUCKET)["count"].sum(dtype=np.int64))


@given(values, st.floats(0, 1))
def test_a_percentile_is_within_two_percent(numbers: list[float], share: float) -> None:
    exact = sorted(numbers)[max(1, math.ceil(share * len(numbers))) - 1]
    assert percentile(sketch(numbers), share) == pytest.approx(exact, rel=0.0201)


@given(st.lists(values, max_size=5))
def test_merging_is_joining(parts: list[list[float]]) -> None:
    joined = b"".join(sketch(part) for part in parts)
    whole = sketch(value for part in parts for value in part)
    assert merged(b"", joined) == whole
    assert merged(b"", whole) == whole
    assert count(joined) == count(whole) == sum(map(len, parts))
    assert percentile(joined, 0.5) == percentile(whole, 0.5)


@given(values, values)
def test_a_small_one_is_added_to_a_large_one(many: list[float], few: list[float]) -> None:
    assert merged(sketch(many), sketch(few)) == sketch([*many, *few])


@given(st.lists(values, min_size=1, max_size=5), st.floats(0, 1))
def test_what_grows_stays_short_and_says_the_same(parts: list[list[float]], share: float) -> None:
    whole, all_parts = bytearray(), [sketch(part) for part in parts] * 40
    for one in all_parts:
        grow(whole, one * 20)
    assert len(whole) <= LONG_BYTES
    assert count(bytes(whole)) == 40 * 20 * sum(map(len, parts))
    assert percentile(bytes(whole), share) == percentile(b"".join(all_parts), share)


def test_nothing_has_no_percentile_and_zero_counts_as_the_smallest() -> None:
    assert percentile(b"", 0.5) is None
    assert merged(b"", b"") == b""
    assert percentile(sketch([0.0, -1.0]), 0.5) == pytest.approx(1e-6, rel=0.04)
