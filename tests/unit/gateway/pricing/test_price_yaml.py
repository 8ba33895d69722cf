from dataclasses import replace
from datetime import date
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.pricing.catalogue import (
    Ladder,
    ModelPrices,
    ModelRecord,
    OffPeak,
    ProviderPrices,
    Rates,
    Service,
    Step,
    Window,
)
from gateway.pricing.price_text import SERVICES as NAMES
from gateway.pricing.price_text import parse_prices
from gateway.pricing.price_yaml import decimal_text, format_prices
from tests.unit.gateway.pricing.builders import at

RATE = st.integers(0, 10**11)
OWN = st.none() | RATE
RATES = st.builds(Rates, RATE, RATE, OWN, OWN, OWN, OWN, OWN, OWN, OWN)
STEPS = st.lists(st.builds(Step, st.integers(1, 10**6), RATES, st.booleans()), max_size=2).map(
    lambda steps: tuple(
        sorted({step.above_input_tokens: step for step in steps}.values(), key=lambda step: step.above_input_tokens)
    )
)
LADDERS = st.builds(Ladder, RATES, STEPS)
SERVICES = st.builds(Service, st.integers(0, 400).map(lambda n: Fraction(n, 8))) | st.builds(
    Service, st.just(Fraction(1)), LADDERS
)
TEXT = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), min_size=1, max_size=20)
WINDOWS = st.builds(
    Window,
    st.sets(st.integers(1, 7), min_size=1).map(lambda days: tuple(sorted(days))),
    st.integers(0, 1440),
    st.integers(0, 1440),
)
HOLIDAYS = ((), (date(2027, 1, 1), date(2027, 2, 8)))
PRICES = st.builds(
    ModelPrices,
    ladder=LADDERS,
    from_us=st.integers(0, 20_000).map(lambda days: days * 86_400_000_000),
    source=TEXT,
    services=st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, SERVICES)),
    per_request_pico_usd=st.integers(0, 10**12),
    off_peak=st.none()
    | st.builds(OffPeak, st.lists(WINDOWS, min_size=1, max_size=2).map(tuple), LADDERS, st.sampled_from(HOLIDAYS)),
    note=st.just("") | TEXT,
)


@settings(max_examples=30)
@given(PRICES, TEXT, TEXT)
def test_what_is_written_reads_back_as_itself(prices: ModelPrices, model: str, alias: str) -> None:
    later = replace(prices, from_us=at("2099-01-01"))
    aliases = (alias,) if alias != model else ()
    file = ProviderPrices("acme", (ModelRecord(model, (prices, later), aliases),))
    assert parse_prices(format_prices(file), "acme.yaml") == file


def test_the_text_is_what_a_person_would_write() -> None:
    rates = Rates(2_500_000, 10_000_000, cached_input=2_800)
    prices = ModelPrices(
        Ladder(rates, (Step(200_000, rates),)), at("2026-06-01"), "litellm 1", {"batch": Service(Fraction(1, 2))}
    )
    assert (
        format_prices(ProviderPrices("acme", (ModelRecord("large/0601", (prices,)),)))
        == """\
provider: acme
models:
  large/0601:
    prices:
    - from: 2026-06-01
      source: "litellm 1"
      input: 2.5
      output: 10
      cached_input: 0.0028
      above: [{above_input_tokens: 200000, input: 2.5, output: 10, cached_input: 0.0028}]
      batch: {multiplier: 0.5}
"""
    )


def test_a_ratio_without_decimal_text_is_refused() -> None:
    with pytest.raises(ValueError, match="5/3"):
        decimal_text(Fraction(5, 3))


@pytest.mark.parametrize("searches", [(None, None), (10**10, 10**10), (10**10, 10**9), (10**10, None)])
def test_what_a_search_costs_is_said_once_or_with_each_record(searches: tuple[int | None, int | None]) -> None:
    one, two = (
        ModelPrices(
            Ladder(Rates(1, 2)), at("2026-11-01"), "test", web_search_pico_usd=search, file_search_pico_usd=search
        )
        for search in searches
    )
    file = ProviderPrices("acme", (ModelRecord("a", (one,)), ModelRecord("b", (two,))))
    assert parse_prices(format_prices(file), "acme.yaml") == file
