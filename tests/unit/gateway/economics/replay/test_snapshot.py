"""A replay under a real snapshot: the router's decision, the catalogue's prices, the engine's speed."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from gateway.economics.replay.log import Served, logged_request_of
from gateway.economics.replay.outcome import Lengths, ModelOutcome, ShadowPair, learn_lengths
from gateway.economics.replay.replay import Scenario, decide_with, replay
from gateway.economics.replay.snapshot import outcomes_with, price_with
from gateway.ledger.entry import NO_MEDIA, Media
from gateway.pricing.catalogue import Service
from gateway.routing.snapshot import CacheWrites
from tests.builders import make_candidate, make_local, make_prices, make_snapshot
from tests.unit.gateway.economics.replay.builders import make_logged
from tests.unit.gateway.ledger.builders import make_entry

SNAPSHOT = make_snapshot(
    "version: 1\nrules:\n"
    "  - {name: easy, when: {difficulty: {at_most: 0.4}}, choose: {from: [local]}}\n"
    "  - {name: rest, choose: {from: [mid]}}\n"
)
PRICE = price_with(SNAPSHOT.candidates)
SERVED = Served(0, 2000, 500, 0, 300, 0.25)


def test_hosted_tokens_cost_the_catalogues_price() -> None:
    mid = SNAPSHOT.candidates["mid"]
    assert mid.prices is not None
    rates = mid.prices.rates
    cached = rates.input if rates.cached_input is None else rates.cached_input
    assert PRICE("mid", SERVED) == 1500 * rates.input + 500 * cached + 300 * rates.output


def test_gpu_seconds_cost_the_hours_rent() -> None:
    speed = SNAPSHOT.candidates["local"].speed
    assert speed is not None
    assert PRICE("local", SERVED) == round(0.25 * speed.gpu_hour_pico_usd / 3600)


def test_what_is_not_in_the_snapshot_has_no_price() -> None:
    assert PRICE("gone", SERVED) is None
    unpriced = make_candidate("mid", prices=None)
    assert price_with({"mid": unpriced})("mid", SERVED) is None


def test_contradictory_counts_have_no_price() -> None:
    assert PRICE("mid", SERVED._replace(cached_input_tokens=2001)) is None


def test_a_service_tier_and_the_tools_that_ran_cost_what_they_cost_there() -> None:
    """The tier's price at the provider that named it, unknown if it has none; the ordinary price elsewhere."""
    prices = replace(make_prices(), services={"priority": Service(Fraction(2))}, web_search_pico_usd=10**10)
    models = [
        make_candidate("tiered", prices=prices),
        make_candidate("plain", prices=make_prices()),
        make_candidate("elsewhere", provider="anthropic", prices=prices),
    ]
    cost = price_with({one.name: one for one in models})
    hurried = SERVED._replace(provider="openai", service_tier="priority")
    assert cost("tiered", hurried) == 2 * (cost("tiered", SERVED) or 0) > 0
    assert cost("plain", hurried) is None
    assert cost("elsewhere", hurried) == cost("elsewhere", SERVED)
    always = price_with({"always": replace(models[2], asked_tier="priority")})
    assert always("always", SERVED._replace(provider="openai")) == cost("tiered", hurried)
    searched = SERVED._replace(web_searches=3)
    assert cost("tiered", searched) == 3 * 10**10 + (cost("tiered", SERVED) or 0)
    assert cost("plain", searched) is None
    assert cost("tiered", SERVED._replace(other_tool_calls=1)) is None


def test_what_was_billed_beside_tokens_is_read_from_the_ledger() -> None:
    beside: dict[str, Any] = {"service_tier": "priority", "web_searches": 1, "file_searches": 2, "other_tool_calls": 3}
    entry = make_entry(1, media=Media(images=2), **beside)
    assert logged_request_of(entry).served[6:] == ("openai", "priority", 1, 2, 3, Media(images=2))
    assert logged_request_of(make_entry(1)).served.media == NO_MEDIA


def test_an_engines_outcome_is_its_speed() -> None:
    local = make_local()
    speed = local.speed
    assert speed is not None
    outcome = outcomes_with([local], {"local": (1.1, 1.3)})["local"]
    assert (outcome.input_ratio, outcome.output_ratio) == (1.1, 1.3)
    seconds = 1500 / speed.prefill_tokens_per_second + 300 * speed.decode_seconds_per_token
    assert outcome.gpu_seconds(2000, 500, 300) == pytest.approx(seconds)


def test_a_month_under_other_rules() -> None:
    log = [make_logged(0.0, difficulty=0.1, model="mid"), make_logged(1.0, difficulty=0.9, model="mid")]
    scenario = Scenario(decide_with(SNAPSHOT), PRICE, PRICE, outcomes_with(SNAPSHOT.candidates.values()))
    diff = replay(log, scenario)
    assert diff.replayed.requests_by_model == {"local": 1, "mid": 1}
    local = diff.replayed.cost_pico_usd - (log[1].cost_pico_usd or 0)
    assert local == PRICE("local", Served(0, 2000, 0, 0, 300, scenario.outcomes["local"].gpu_seconds(2000, 0, 300)))


@pytest.mark.parametrize(
    ("to", "of", "served", "tier"),
    [
        ("flex", None, None, "flex"),  # what a block in flex would save at the same provider
        ("flex", None, "priority", "flex"),  # a block has the last word
        (None, "flex", "flex", None),  # the other block asked for it, not the caller
        (None, "flex", "default", "default"),
        (None, None, "priority", "priority"),
    ],
)
def test_a_move_between_blocks_of_a_provider_is_served_in_the_tier_asked_for_there(
    to: str | None, of: str | None, served: str | None, tier: str | None
) -> None:
    logged = make_logged(0.0)
    logged = replace(logged, served=logged.served._replace(service_tier=served))
    moved = ModelOutcome(asked_tier=to).served_instead(logged, ModelOutcome(asked_tier=of), 0)
    assert moved.service_tier == tier
    assert outcomes_with([make_candidate("mid", asked_tier=to)])["mid"].asked_tier == to


def test_lengths_are_learned_against_the_model_that_most_were_compared_with() -> None:
    pairs = [
        ShadowPair("a", "big", 30, 400, 100, 440, 90),
        ShadowPair("big", "a", 10, 110, 30, 100, 20),  # the same comparison, the other way round
        ShadowPair("b", "big", 20, 50, 10, 50, 25),
        ShadowPair("c", "big", 19, 50, 10, 50, 25),  # too few
        ShadowPair("d", "big", 50, 50, 0, 50, 25),  # a model without output is no reference
        ShadowPair("b", "a", 40, 1, 1, 9, 9),
    ]
    assert learn_lengths(pairs) == Lengths("big", {"a": (550 / 500, 120 / 120), "b": (1.0, 2.5)}, 60)
    assert learn_lengths(pairs[3:4]) is None
    assert learn_lengths([]) is None


@pytest.mark.parametrize(
    ("to", "of", "read", "wrote", "repeated", "written"),
    [
        (CacheWrites("provider", 1024), CacheWrites(), 0, 0, 0, 2000),  # GPT-5.6 and later cache every prompt
        (CacheWrites("provider", 2001), CacheWrites(), 0, 0, 0, 0),
        (CacheWrites("gateway", 512), CacheWrites("gateway", 512), 1500, 500, 1000, 1000),
        (CacheWrites("gateway", 512), CacheWrites("provider", 1024), 0, 2000, 0, 0),
        (CacheWrites(), CacheWrites(), 1500, 300, 0, 1800),  # as its caller marked it
        (CacheWrites(), CacheWrites(), 1500, 0, 0, 0),  # read from a cache whose writes are free
        (CacheWrites(), CacheWrites("provider", 1024), 0, 2000, 0, 0),  # nobody marked it
        (CacheWrites(), CacheWrites("gateway", 512), 1500, 500, 2000, 0),  # nobody would mark it at that model
    ],
)
def test_what_a_move_writes_to_a_prompt_cache_is_charged(
    to: CacheWrites, of: CacheWrites, read: int, wrote: int, repeated: int, written: int
) -> None:
    logged = make_logged(0.0, input_tokens=2000, cached=read)
    facts = msgspec.structs.replace(logged.facts, repeated_tokens=repeated)
    request = msgspec.structs.replace(logged.request, facts=facts)
    logged = replace(logged, request=request, served=logged.served._replace(cache_write_tokens=wrote))
    moved = ModelOutcome(cache_writes=to).served_instead(logged, ModelOutcome(cache_writes=of), 0)
    assert (moved.cached_input_tokens, moved.cache_write_tokens) == (0, written)


def test_the_snapshot_says_who_writes() -> None:
    writer = make_candidate("mid", cache_writes=CacheWrites("provider", 1024))
    assert outcomes_with([writer])["mid"].cache_writes == writer.cache_writes
