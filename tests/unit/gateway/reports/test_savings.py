"""Savings compare like with like: what a chat model could have served, at today's price, with what that cost."""

from dataclasses import replace
from fractions import Fraction

from msgspec import structs

from gateway.ledger.entry import JUDGE, SHADOW
from gateway.money import parse_usd
from gateway.pricing.catalogue import Service
from gateway.reports.plans import pick_alternative
from gateway.reports.savings import savings
from gateway.reports.views import IdleCost
from gateway.sums import Dimension, Sums
from tests.builders import make_candidate, make_prices, make_snapshot

USD = 10**12
SNAPSHOT = make_snapshot(
    "version: 1\nrules: [{name: r, choose: {from: [small, big]}}]",
    [make_candidate("small", prices=make_prices(1.0, 2.0)), make_candidate("big", prices=make_prices(10.0, 20.0))],
)


def group(model: str, operation: str, *, cost: int, input_tokens: int = 1_000_000) -> Sums:
    names: dict[Dimension, str | None] = {
        "model": model,
        "operation": operation,
        "status": "completed",
        "backend": "openai",
    }
    return Sums(names, requests=1, input_tokens=input_tokens, output_tokens=0, input_pico_usd=cost)


CHAT = group("small", "chat.completions", cost=3 * USD)
IDLE = IdleCost(rent_usd="5", used_usd="1", idle_usd="4", utilisation=0.2)


def test_prices_are_todays_and_what_was_spent_is_not() -> None:
    found = {one.against: one for one in savings(SNAPSHOT, [CHAT], None)}
    assert {name: parse_usd(one.would_have_cost_usd) for name, one in found.items()} == {"small": USD, "big": 10 * USD}
    assert {name: parse_usd(one.saved_usd) for name, one in found.items()} == {"small": -2 * USD, "big": 7 * USD}


def test_a_model_is_held_against_at_the_tier_that_its_block_asks_for() -> None:
    prices = replace(make_prices(1.0, 2.0), services={"priority": Service(multiplier=Fraction("1.8"))})
    models = [make_candidate(tier, prices=prices, asked_tier=tier) for tier in ("priority", "unheard-of")]
    found = {one.against: one.would_have_cost_usd for one in savings(make_snapshot(candidates=models), [CHAT], None)}
    assert {name: parse_usd(would) for name, would in found.items()} == {"priority": 18 * USD // 10, "unheard-of": USD}


def test_nothing_is_held_against_a_simulated_model_beside_real_ones() -> None:
    """A deployment with a hosted endpoint of its own, and no provider's key, read what a model it does not have would
    have saved."""
    dearest = make_candidate("simulated/sol", prices=make_prices(100.0, 200.0), is_simulated=True)
    beside = replace(SNAPSHOT, candidates={**SNAPSHOT.candidates, dearest.name: dearest})
    assert savings(beside, [CHAT], None) == savings(SNAPSHOT, [CHAT], None)
    alone = make_snapshot(candidates=[dearest])
    assert [one.against for one in savings(alone, [CHAT], None)] == ["simulated/sol"]
    assert pick_alternative(beside, None, ["own"]).name == "small"
    assert pick_alternative(beside, "simulated/sol", []).name == "simulated/sol"


def test_embeddings_are_on_neither_side() -> None:
    embeddings = group("embedder", "embeddings", cost=USD, input_tokens=10**9)
    assert savings(SNAPSHOT, [CHAT, embeddings], IDLE) == savings(SNAPSHOT, [CHAT], IDLE)
    assert savings(SNAPSHOT, [embeddings], IDLE) == []


def test_idle_rent_shadow_calls_and_their_judge_count_as_spent() -> None:
    own = [group("big", SHADOW, cost=USD), group("big", JUDGE, cost=USD)]
    [_, big] = savings(SNAPSHOT, [CHAT, *own], IDLE)
    assert parse_usd(big.saved_usd) == (10 - 3 - 2 - 4) * USD
    assert big.covered_requests == 1


def test_what_nobody_answered_would_have_cost_nothing_elsewhere_either() -> None:
    prices = replace(make_prices(1.0, 2.0), per_request_pico_usd=USD)
    snapshot = make_snapshot(candidates=[make_candidate("mid", prices=prices)])
    failed = structs.replace(CHAT, group={**CHAT.group, "status": "failed"}, input_tokens=0, input_pico_usd=0)
    [answered] = savings(snapshot, [CHAT], None)
    assert savings(snapshot, [CHAT, failed], None) == [answered]
    assert parse_usd(answered.would_have_cost_usd) == 2 * USD


def test_the_same_requests_at_the_same_model_save_nothing_where_a_prompt_was_written_to_a_cache() -> None:
    prices = make_prices(1.0, 2.0, cached_input=100_000, cache_write_5m=1_250_000, cache_write_1h=2_000_000)
    snapshot = make_snapshot(candidates=[make_candidate("mid", prices=prices)])
    names: dict[Dimension, str | None] = {
        "model": "mid",
        "operation": "chat.completions",
        "status": "completed",
        "backend": "openai",
    }
    written = Sums(
        names,
        requests=1,
        input_tokens=1_000_000,
        cached_input_tokens=200_000,
        cache_write_5m_tokens=400_000,
        cache_write_1h_tokens=100_000,
        input_pico_usd=300_000 * 10**6,
        cached_input_pico_usd=200_000 * 10**5,
        cache_write_pico_usd=400_000 * 1_250_000 + 100_000 * 2_000_000,
    )
    [same] = savings(snapshot, [written], None)
    assert (same.against, parse_usd(same.saved_usd)) == ("mid", 0)
