import pytest

from gateway.routing.decide import decide
from gateway.routing.snapshot import Snapshot
from tests.builders import make_candidate, make_prices, make_request, make_snapshot

DRAWS = [i / 1000 + 0.0005 for i in range(1000)]


def snapshot_of(choose: str) -> Snapshot:
    rules = f"version: 1\nrules: [{{name: default, choose: {choose}}}]\n"
    return make_snapshot(rules, [make_candidate("mid"), make_candidate("large", prices=make_prices(10, 40))])


@pytest.mark.parametrize(
    ("choose", "spent", "tried"),
    [
        ("{from: any, explore: 0.1}", 0, 50),
        ("{from: any, explore: 0.1}", 10**15, 50),
        ("{from: any, explore: 0.1, explore_usd_per_day: 1}", 0, 50),
        ("{from: any, explore: 0.1, explore_usd_per_day: 1}", 10**12, 0),
        ("{from: any, explore: 0.1, explore_usd_per_day: 0}", 0, 0),
        ("{from: any, by: quality, explore: 0.1, explore_usd_per_day: 0}", 0, 50),
        ("{from: any, explore: 0}", 0, 0),
    ],
)
def test_the_cap_ends_what_costs_more_and_nothing_else(choose: str, spent: int, tried: int) -> None:
    snapshot = snapshot_of(choose)
    preferred = decide(make_request(draw=0.99), snapshot).decision.model
    chances: dict[str, float] = {}
    others = 0
    for draw in DRAWS:
        decision = decide(make_request(draw=draw, explored_pico_usd={"default": spent}), snapshot).decision
        chances[decision.model] = decision.propensity
        others += decision.model != preferred
        assert (decision.exploration_pico_usd > 0) is (decision.model == "large" and preferred == "mid")
    assert others == tried
    assert sum(chances.values()) == pytest.approx(1.0)


def test_what_another_rule_explored_is_not_this_ones() -> None:
    snapshot = snapshot_of("{from: any, explore: 0.5, explore_usd_per_day: 1}")
    decision = decide(make_request(draw=0.4, explored_pico_usd={"other": 10**13}), snapshot).decision
    assert decision.model == "large"


def test_an_unknown_price_is_beyond_every_cap() -> None:
    rules = "version: 1\nrules: [{name: default, choose: {from: any, explore: 0.5, explore_usd_per_day: 1000}}]\n"
    snapshot = make_snapshot(rules, [make_candidate("mid"), make_candidate("large", prices=None)])
    decision = decide(make_request(draw=0.4), snapshot).decision
    assert (decision.model, decision.propensity) == ("mid", 1.0)


def test_an_uncapped_try_of_an_unknown_price_is_expected_to_cost_nothing_more() -> None:
    rules = "version: 1\nrules: [{name: default, choose: {from: any, explore: 0.5}}]\n"
    snapshot = make_snapshot(rules, [make_candidate("mid"), make_candidate("large", prices=None)])
    decision = decide(make_request(draw=0.4), snapshot).decision
    assert (decision.model, decision.exploration_pico_usd) == ("large", 0)
