"""What providers' caches saved, from the money of reads and writes."""

from typing import Any

import pytest

from gateway.pricing.catalogue import Ladder, ModelPrices, Rates
from gateway.reports.cache_savings import saved_by_caches
from gateway.sums import Sums
from tests.builders import make_candidate, make_local, make_snapshot

RATES = Rates(input=100, output=500, cached_input=10, cache_write_5m=125, cache_write_1h=200)
FREE = Rates(input=100, output=500, cached_input=0)
CANDIDATES = [
    make_candidate("claude", prices=ModelPrices(Ladder(RATES), 0, "test")),
    make_candidate("mid", prices=ModelPrices(Ladder(Rates(input=100, output=500)), 0, "test")),
    make_candidate("free", prices=ModelPrices(Ladder(FREE), 0, "test")),
    make_local(),
]
SNAPSHOT = make_snapshot(candidates=CANDIDATES)


def part(model: str = "claude", **sums: Any) -> Sums:
    return Sums({"model": model}, **sums)


READ: dict[str, Any] = {"cached_input_tokens": 1000, "cached_input_pico_usd": 10_000}
WROTE: dict[str, Any] = {"cache_write_5m_tokens": 1000, "cache_write_pico_usd": 125_000}


@pytest.mark.parametrize(
    ("parts", "saved"),
    [
        ([], 0),
        ([part(**READ)], 90_000),
        ([part(**WROTE)], -25_000),
        ([part(**READ, **WROTE)], 65_000),
        ([part(**READ), part(**WROTE)], 65_000),
        ([part(cache_write_5m_tokens=500, cache_write_1h_tokens=500, cache_write_pico_usd=162_500)], -62_500),
        # At twice the price in a more expensive tier: what the same tokens would have cost there.
        ([part(cached_input_tokens=1000, cached_input_pico_usd=20_000)], 180_000),
        ([part("mid", cached_input_tokens=1000, cached_input_pico_usd=100_000)], 0),
        ([part("free", cached_input_tokens=1000), part("gone", **READ), part("local", **READ)], 0),
    ],
)
def test_reads_save_what_fresh_input_costs_more_and_writes_take_off_theirs(parts: list[Sums], saved: int) -> None:
    assert saved_by_caches(SNAPSHOT, parts) == saved
