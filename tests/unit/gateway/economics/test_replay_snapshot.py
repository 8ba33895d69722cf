"""A replay under a real snapshot: the router's decision, the catalogue's prices, the engine's speed."""

import pytest

from gateway.economics.errors import NotMeasured
from gateway.economics.replay import Scenario, decide_with, replay
from gateway.economics.replay_log import Served
from gateway.economics.replay_outcome import ShadowPair, learn_ratios
from gateway.economics.replay_snapshot import outcomes_with, price_with
from tests.builders import make_candidate, make_local, make_snapshot
from tests.unit.gateway.economics.replay_builders import make_logged

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
    local = diff.replayed.cost_pico_usd_by_model["local"]
    assert local == PRICE("local", Served(0, 2000, 0, 0, 300, scenario.outcomes["local"].gpu_seconds(2000, 0, 300)))


def test_ratios_are_learned_from_shadow_pairs_by_their_sums() -> None:
    pairs = [ShadowPair("a", 100, 10, 110, 20), ShadowPair("a", 300, 90, 330, 80), ShadowPair("b", 50, 5, 50, 5)]
    assert learn_ratios(pairs) == {"a": (1.1, 1.0), "b": (1.0, 1.0)}
    with pytest.raises(NotMeasured):
        learn_ratios([ShadowPair("a", 0, 0, 5, 5)])
