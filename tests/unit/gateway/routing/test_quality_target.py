from collections.abc import Sequence

from gateway.routing.decide import decide
from gateway.routing.quality_target import LEAST_REQUESTS, NEWEST_REQUESTS, allowed_loss
from gateway.routing.rules import Rule
from gateway.routing.snapshot import RequestFacts, Snapshot
from tests.builders import make_candidate, make_prices, make_request, make_snapshot

CHEAP, STRONG = make_candidate("mid"), make_candidate("large", prices=make_prices(10, 40))
SHARE = 0.9


def snapshot_of(choose: str) -> tuple[Snapshot, Rule]:
    snapshot = make_snapshot(f"version: 1\nrules: [{{name: default, choose: {choose}}}]\n", [CHEAP, STRONG])
    return snapshot, snapshot.rules[-1]


def traffic(count: int = 1000) -> list[RequestFacts]:
    """The cheap model ranges from equal to hopeless, and the newest requests are like all others."""
    places = (i * 387 % count for i in range(count))
    return [make_request(quality={"mid": round(0.9 - 0.9 * i / count, 4), "large": 0.9}) for i in places]


def chosen_quality(requests: Sequence[RequestFacts], snapshot: Snapshot, losses: dict[str, float]) -> list[float]:
    found: list[float] = []
    for request in requests:
        own = make_request(quality=request.facts.quality, allowed_loss=losses)
        found.append(decide(own, snapshot).decision.predicted_quality or 0.0)
    return found


def test_the_share_is_kept_over_traffic_and_hardly_more_is_paid_for() -> None:
    snapshot, rule = snapshot_of(f"{{from: any, quality_share: {SHARE}}}")
    requests = traffic()
    loss = allowed_loss(requests, rule, snapshot)
    assert loss is not None
    assert rule.target_name is not None
    got = chosen_quality(requests, snapshot, {rule.target_name: loss})
    assert SHARE * 0.9 <= sum(got) / len(got) <= SHARE * 0.9 + 0.001
    assert sum(q < 0.9 for q in got) > 400, "prompt by prompt only 100 of them may be cheap"
    by_prompt = chosen_quality(requests, snapshot, {})
    assert min(by_prompt) >= SHARE * 0.9
    assert 95 <= sum(q < 0.9 for q in by_prompt) <= 101


def test_traffic_that_has_changed_is_kept_to_the_share_before_it_is_most_of_what_is_known() -> None:
    """If the cheap model is almost always hopeless, the small total loss allows a large loss on single prompts."""
    snapshot, rule = snapshot_of(f"{{from: any, quality_share: {SHARE}}}")
    before = [make_request(quality={"mid": 0.4 if i % 8 == 0 else 0.0, "large": 0.9}) for i in range(3600)]
    now = [make_request(quality={"mid": 0.4 if i % 2 == 0 else 0.85, "large": 0.9}) for i in range(NEWEST_REQUESTS)]
    assert allowed_loss(before, rule, snapshot) == 0.5
    loss = allowed_loss([*now, *before], rule, snapshot)
    assert loss is not None
    assert rule.target_name is not None
    got = chosen_quality(now, snapshot, {rule.target_name: loss})
    assert sum(got) / len(got) >= SHARE * 0.9


def test_too_little_traffic_of_the_rule_calibrates_nothing() -> None:
    snapshot, rule = snapshot_of("{from: any, quality_share: 0.9}")
    assert allowed_loss(traffic(LEAST_REQUESTS - 1), rule, snapshot) is None
    unknown = [make_request(quality={}) for _ in range(LEAST_REQUESTS)]
    assert allowed_loss(unknown, rule, snapshot) is None


def test_only_the_rules_own_requests_count() -> None:
    rules = """
version: 1
rules:
  - {name: tagged, when: {tags: [x]}, choose: {from: any, quality_share: 0.9}}
  - {name: default, choose: {from: any}}
"""
    snapshot = make_snapshot(rules, [CHEAP, STRONG])
    assert allowed_loss(traffic(), snapshot.rules[0], snapshot) is None
    tagged = [make_request(tags=("x",), quality=one.facts.quality) for one in traffic()]
    assert allowed_loss(tagged, snapshot.rules[0], snapshot) is not None


def test_everything_may_be_cheap_where_that_loses_little_enough() -> None:
    snapshot, rule = snapshot_of("{from: any, quality_share: 0.5}")
    requests = [make_request(quality={"mid": 0.8, "large": 0.9}) for _ in range(LEAST_REQUESTS)]
    assert allowed_loss(requests, rule, snapshot) == 0.1
    assert rule.target_name is not None
    assert set(chosen_quality(requests, snapshot, {rule.target_name: 0.1})) == {0.8}


def test_all_of_the_best_is_the_best() -> None:
    snapshot, rule = snapshot_of("{from: any, quality_share: 1}")
    assert allowed_loss(traffic()[1:], rule, snapshot) == 0.0
    assert rule.target_name is not None
    assert set(chosen_quality(traffic()[1:], snapshot, {rule.target_name: 0.0})) == {0.9}


def test_a_floor_on_every_prompt_stays_beside_the_share() -> None:
    snapshot, rule = snapshot_of("{from: any, quality_share: 0.5, keep_quality: 0.8}")
    assert rule.target_name is not None
    assert min(chosen_quality(traffic(), snapshot, {rule.target_name: 1.0})) >= 0.72


def test_a_changed_rule_is_not_calibrated_yet() -> None:
    _, one = snapshot_of("{from: any, quality_share: 0.9}")
    _, same = snapshot_of("{from: any, quality_share: 0.9}")
    _, other = snapshot_of("{from: [mid, large], quality_share: 0.9}")
    _, none = snapshot_of("{from: any}")
    assert one.target_name == same.target_name != other.target_name
    assert none.target_name is None


def test_a_request_without_any_model_that_can_serve_it_is_passed_over() -> None:
    snapshot, rule = snapshot_of("{from: any, quality_share: 0.9}")
    too_long = [make_request(input_tokens=10**7) for _ in range(LEAST_REQUESTS)]
    assert allowed_loss(too_long, rule, snapshot) is None
