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
        ("{from: any, by: quality, explore: 0.1, explore_usd_per_day: 1}", 2 * 10**12, 50),
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


@pytest.mark.parametrize(
    ("explore_min_quality", "mid", "large", "models"),
    [
        (None, 0.6, 0.9, {"large": 1.0}),
        (0.65, 0.6, 0.9, {"large": 1.0}),
        (0.5, 0.6, 0.9, {"large": 0.95, "mid": 0.05}),
        (0.5, 0.8, 0.9, {"mid": 0.95, "large": 0.05}),
        (0.5, 0.6, 0.65, {"large": 0.95, "mid": 0.05}),
        (0.5, 0.4, 0.65, {"large": 1.0}),
        (None, 0.6, 0.65, {"large": 1.0}),
    ],
)
def test_exploration_may_try_what_is_predicted_to_be_too_poor(
    explore_min_quality: float | None, mid: float, large: float, models: dict[str, float]
) -> None:
    """Otherwise nobody would learn that a cheap model is better than predicted where it is predicted too poor."""
    reach = "" if explore_min_quality is None else f", explore_min_quality: {explore_min_quality}"
    snapshot = snapshot_of(f"{{from: any, min_quality: 0.7, explore: 0.1{reach}}}")
    found: dict[str, float] = {}
    for draw in DRAWS:
        choice = decide(make_request(draw=draw, quality={"mid": mid, "large": large}), snapshot)
        found[choice.decision.model] = choice.decision.propensity
        assert choice.order[0].name == choice.decision.model
        assert {one.name for one in choice.order} == {"mid", "large"}
        assert len(choice.order) == 2
    assert found == pytest.approx(models)
