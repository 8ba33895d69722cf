"""What is booked for an answer that was cut off, or whose caller left, after part of its usage was reported."""

from dataclasses import replace
from fractions import Fraction

import pytest

from backends.protocol import Chunk
from backends.usage import Usage
from gateway.ledger.entry import Status
from gateway.pricing.catalogue import Service
from gateway.request.metering import Meter
from gateway.request.settlement import Outcome, settle_entry
from tests.builders import make_candidate, make_prices
from tests.unit.gateway.ledger.builders import make_intent

SO_FAR = Usage(100, 80, 20, output_tokens=1)
PRICES = make_prices(1.0, 4.0, cached_input=100_000, cache_write_5m=1_250_000)


def test_its_cached_input_is_known_and_its_output_estimated() -> None:
    meter = Meter(started_at=0.0)
    meter.observe(Chunk(b"", usage_so_far=SO_FAR), 1.0)
    meter.observe(Chunk(b"x", has_output=True, output_characters=40), 1.0)
    entry = settle_entry(make_intent(), meter, Outcome(Status.partial, 200, make_candidate(prices=PRICES), (), 2.0))
    assert (entry.input_tokens, entry.cached_input_tokens, entry.cache_write_5m_tokens) == (100, 80, 20)
    assert (entry.output_tokens, entry.is_usage_estimated) == (10, True)
    assert entry.cost is not None
    assert entry.cost.total_pico_usd == 80 * 100_000 + 20 * 1_250_000 + 10 * 4_000_000
    assert entry.cost_lower_pico_usd == min(entry.cost.total_pico_usd, 50 * 1_000_000 + 5 * 4_000_000)


@pytest.mark.parametrize(("told", "priced"), [(None, "priority"), ("default", "default")])
def test_it_is_in_the_tier_asked_for_unless_another_was_told(told: str | None, priced: str) -> None:
    """As of an answer without any usage. Gemini tells one with each event."""
    prices = replace(PRICES, services={"priority": Service(Fraction(2))})
    meter = Meter(started_at=0.0, asked_tier="priority")
    so_far = Usage(100, output_tokens=10, service_tier=told)
    meter.observe(Chunk(b"x", has_output=True, output_characters=40, usage_so_far=so_far), 1.0)
    entry = settle_entry(make_intent(), meter, Outcome(Status.cancelled, 499, make_candidate(prices=prices), (), 2.0))
    assert entry.service_tier == priced
    assert entry.cost is not None
    assert entry.cost.total_pico_usd == (100 + 10 * 4) * 1_000_000 * (2 if priced == "priority" else 1)
    assert entry.cost_lower_pico_usd == (50 + 5 * 4) * 1_000_000


def test_thoughts_that_it_reported_are_not_estimated_again() -> None:
    meter = Meter(started_at=0.0, first_output_at=1.0, usage_so_far=Usage(9, output_tokens=30, reasoning_tokens=20))
    outcome = Outcome(Status.cancelled, 499, make_candidate(), (), 2.0, unseen_tokens=500)
    assert settle_entry(make_intent(), meter, outcome).output_tokens == 30


def test_who_left_before_its_first_word_is_booked_its_input_as_reported() -> None:
    meter = Meter(started_at=0.0, usage_so_far=SO_FAR)
    outcome = Outcome(Status.cancelled, 499, make_candidate(), (), 2.0, may_have_been_billed=True)
    assert settle_entry(make_intent(), meter, outcome).cached_input_tokens == 80


def test_a_cut_answer_that_a_cache_on_the_way_had_kept_costs_nothing() -> None:
    meter = Meter(started_at=0.0)
    kept = Usage(charged_pico_usd=0, is_estimated=True)
    meter.observe(Chunk(b"x", has_output=True, output_characters=40, usage_so_far=kept), 1.0)
    entry = settle_entry(make_intent(), meter, Outcome(Status.cancelled, 499, make_candidate(prices=PRICES), (), 2.0))
    assert (entry.input_tokens > 0, entry.output_tokens, entry.is_usage_estimated) == (True, 10, True)
    assert entry.cost is not None
    assert (entry.cost.total_pico_usd, entry.cost_lower_pico_usd, entry.cost_upper_pico_usd) == (0, 0, 0)
