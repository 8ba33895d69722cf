import re
from typing import Any

import pytest

from gateway.errors import ContextTooLong, ModelNotFound, NoCapableModel, NoEligibleModel
from gateway.routing.decide import decide
from gateway.routing.plans import HOLDS, MOST_POOLS, SIMULATE_TAG, pool_of
from gateway.routing.rules import EMBEDDINGS, When
from gateway.routing.snapshot import Snapshot
from tests.builders import make_candidate, make_local, make_prices, make_request, make_snapshot


def rules(choose: str, *, when: str = "") -> Snapshot:
    first = f"  - {{name: special, when: {when}, choose: {{from: [large]}}}}\n" if when else ""
    return make_snapshot(f"version: 1\nrules:\n{first}  - {{name: default, choose: {choose}}}\n")


@pytest.mark.parametrize(
    ("choose", "expected"),
    [
        ("{from: any}", ["local", "mid", "large"]),
        ("{from: any, min_quality: 0.7}", ["mid", "large", "local"]),
        ("{from: any, min_quality: 0.99}", ["large", "mid", "local"]),
        ("{from: any, keep_quality: 0.6}", ["local", "mid", "large"]),
        ("{from: any, keep_quality: 0.8}", ["mid", "large", "local"]),
        ("{from: any, keep_quality: 1}", ["large", "mid", "local"]),
        ("{from: any, min_quality: 0.7, keep_quality: 0.5}", ["mid", "large", "local"]),
        ("{from: any, by: quality}", ["large", "mid", "local"]),
        ("{from: [large, local, mid], by: order}", ["large", "local", "mid"]),
        ("{from: hosted}", ["mid", "large"]),
        ("{from: local}", ["local"]),
        ("{from: any, by: quality, max_cost_usd: 0.001}", ["mid", "local", "large"]),
        ("{from: any, by: quality, max_cost_usd: 0.000000001}", ["local", "mid", "large"]),
        ("{from: any, min_quality: 0.99, max_cost_usd: 0.001}", ["mid", "local", "large"]),
        ("{from: any, keep_quality: 1, max_cost_usd: 0.001}", ["mid", "local", "large"]),
        ("{from: [mid, large], by: quality, max_cost_usd: 0.000000001}", ["mid", "large"]),
    ],
)
def test_order(choose: str, expected: list[str]) -> None:
    choice = decide(make_request(), rules(choose))
    assert [candidate.name for candidate in choice.order] == expected
    assert choice.decision.model == expected[0]
    assert choice.decision.propensity == 1.0


@pytest.mark.parametrize(
    ("when", "matching", "other"),
    [
        ("{difficulty: {at_least: 0.5}}", {"difficulty": 0.5}, {"difficulty": None}),
        ("{uncertainty: {at_most: 0.05}}", {"uncertainty": 0.01}, {"uncertainty": 0.5}),
        ("{input_tokens: {at_least: 1000}}", {"input_tokens": 1000}, {"input_tokens": 999}),
        ("{tags: [a, b]}", {"tags": ("a", "b", "c")}, {"tags": ("a",)}),
        ("{needs: [tools]}", {"needs": ("tools",)}, {"needs": ()}),
        ("{team: [t1, t2]}", {"team": "t2"}, {"team": None}),
        ("{project: [p]}", {"project": "p"}, {"project": "q"}),
        ("{key: [key-1]}", {"key_id": "key-1"}, {"key_id": "key-2"}),
        ("{operation: [embeddings]}", {"operation": "embeddings"}, {"operation": "completions"}),
        ("{model: [auto], tags: [a]}", {"tags": ("a",)}, {"tags": ()}),
    ],
)
def test_every_condition(when: str, matching: dict[str, object], other: dict[str, object]) -> None:
    snapshot = rules("{from: [mid]}", when=when)
    assert decide(make_request(**matching), snapshot).decision.rule == "special"
    assert decide(make_request(**other), snapshot).decision.rule == "default"


EMBEDDER = make_candidate("embedder", supports=frozenset({"embeddings"}), prices=make_prices(0, 0))


@pytest.mark.parametrize("kind", ["any", "hosted"])
def test_of_whole_kinds_a_model_that_embeds_answers_nothing_and_alone_embeds(kind: str) -> None:
    text = f"version: 1\nrules: [{{name: default, choose: {{from: {kind}}}}}]\n"
    snapshot = make_snapshot(text, [make_local(), make_candidate("mid"), EMBEDDER])
    assert "embedder" not in decide(make_request(), snapshot).decision.candidates
    assert decide(make_request(operation="embeddings"), snapshot).decision.candidates == ("embedder",)


@pytest.mark.parametrize(
    ("operation", "specialty"), [("embeddings", "embeddings"), ("moderations", "moderation"), ("rerank", "rerank")]
)
def test_texts_that_are_read_apart_may_together_exceed_the_window(operation: str, specialty: str) -> None:
    reader = make_candidate("reader", supports=frozenset({specialty}), context_window=8_191)
    snapshot = make_snapshot("version: 1\nrules: [{name: default, choose: {from: any}}]\n", [reader])
    asked = make_request(operation=operation, input_tokens=125_000)
    assert decide(asked, snapshot).decision.model == "reader"


def test_where_no_model_embeds_the_refusal_says_how_to_name_one() -> None:
    with pytest.raises(NoCapableModel, match=r"supports: \[embeddings\]"):
        decide(make_request(operation="embeddings"), rules("{from: any}"))


@pytest.mark.parametrize("requested", ["auto", "embedder"])
def test_a_model_that_embeds_is_never_asked_to_chat_though_it_is_named(requested: str) -> None:
    snapshot = make_snapshot("version: 1\nrules: [{name: default, choose: {from: [embedder]}}]\n", [EMBEDDER])
    with pytest.raises(NoCapableModel, match="it is for embeddings only"):
        decide(make_request(requested_model=requested, operation="chat.completions"), snapshot)


def test_a_model_that_is_named_is_asked_for_embeddings_whatever_it_says_of_itself() -> None:
    listed = rules("{from: [mid]}")
    assert decide(make_request(operation="embeddings"), listed).decision.model == "mid"
    assert decide(make_request(operation="embeddings", requested_model="mid"), listed).decision.model == "mid"


def test_a_quality_to_keep_says_nothing_where_no_quality_is_known() -> None:
    assert decide(make_request(quality={}), rules("{from: any, keep_quality: 0.95}")).decision.model == "local"


def test_a_full_engine_overflows_at_once() -> None:
    full = make_request(backend_state={"local": (0, 3.0)})
    assert decide(full, rules("{from: any}")).decision.model == "mid"
    assert decide(make_request(backend_state={"local": (1, 0.0)}), rules("{from: any}")).decision.model == "local"


def test_a_full_engine_may_queue_within_the_latency_target() -> None:
    snapshot = rules("{from: any, max_time_to_first_token_seconds: 2}")
    short, long = {"local": (0, 0.5)}, {"local": (0, 5.0)}
    cheap_wait = make_request(backend_state=short, output_tokens={"local": 1.0, "mid": 500.0, "large": 500.0})
    assert decide(cheap_wait, snapshot).decision.model == "local"
    assert decide(make_request(backend_state=long), snapshot).decision.model == "mid"


def test_a_rules_time_to_the_first_token_is_the_deadline_of_its_requests() -> None:
    assert decide(make_request(), rules("{from: any, max_time_to_first_token_seconds: 2}")).first_token_seconds == 2
    assert decide(make_request(), rules("{from: any}")).first_token_seconds is None
    too_late_anyway = decide(make_request(), rules("{from: [local], max_time_to_first_token_seconds: 0.001}"))
    assert too_late_anyway.first_token_seconds is None, "what no model keeps is no reason to give one up"


def test_a_down_backend_is_not_a_candidate() -> None:
    choice = decide(make_request(backend_state={"local": (-1, 0.0)}), rules("{from: any}"))
    assert [candidate.name for candidate in choice.order] == ["mid", "large"]


def test_unpriced_is_never_the_cheapest() -> None:
    snapshot = make_snapshot(candidates=[make_candidate("mid", prices=None), make_candidate("large")])
    choice = decide(make_request(), snapshot)
    assert choice.decision.model == "large"
    assert choice.decision.expected_cost_pico_usd is not None


def test_a_warm_prefix_keeps_a_conversation_where_it_is() -> None:
    cheap = make_candidate("mid", prices=make_prices(1.0, 4.0, cached_input=100_000))
    cheaper_cold = make_candidate("large", prices=make_prices(0.9, 3.9))
    snapshot = make_snapshot(candidates=[cheap, cheaper_cold])
    assert decide(make_request(input_tokens=10_000), snapshot).decision.model == "large"
    warm = make_request(input_tokens=10_000, warm_tokens={"mid": 9_000})
    assert decide(warm, snapshot).decision.model == "mid"


def test_capabilities_and_windows_reject() -> None:
    snapshot = make_snapshot(candidates=[make_local(supports=frozenset({"streaming"})), make_candidate("mid")])
    assert decide(make_request(needs=("tools",)), snapshot).decision.model == "mid"
    assert decide(make_request(input_tokens=9_000), snapshot).decision.model == "mid"
    with pytest.raises(ContextTooLong, match="100,000"):
        decide(make_request(input_tokens=900_000), snapshot)
    with pytest.raises(NoCapableModel, match=r"local: does not support vision; mid: does not support vision.*supports"):
        decide(make_request(needs=("vision",)), snapshot)
    with pytest.raises(NoEligibleModel) as refused:  # the model that has tools has too small a context
        decide(make_request(input_tokens=900_000, needs=("tools",)), snapshot)
    assert not isinstance(refused.value, NoCapableModel)


@pytest.mark.parametrize(
    ("changes", "param", "advice"),
    [
        ({}, "messages", "Shorten the prompt."),
        ({"max_output_tokens": 9}, "messages", "Shorten the prompt or lower max_tokens."),
        ({"operation": "responses", "max_output_tokens": 9}, "input", "Shorten the prompt or lower max_output_tokens."),
        ({"operation": "completions"}, "prompt", "Shorten the prompt."),
    ],
)
def test_a_prompt_that_is_too_long_is_called_as_its_endpoint_calls_it(
    changes: dict[str, Any], param: str, advice: str
) -> None:
    with pytest.raises(ContextTooLong) as refused:
        decide(make_request(input_tokens=2_000_000, **changes), make_snapshot())
    assert (refused.value.param, str(refused.value).endswith(advice)) == (param, True)


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        (120_000, "prompt is too long: 120000 tokens > 100000 maximum"),
        (
            90_000,
            "input length and `max_tokens` exceed context limit: 90000 + 32000 > 100000, "
            "decrease input length or `max_tokens` and try again: the prompt is too long for an answer of that length",
        ),
    ],
)
def test_anthropics_clients_read_numbers_in_its_words(tokens: int, says: str) -> None:
    """Claude Code asks for a shorter answer if there is room for one; it took every refusal for a prompt too long."""
    asked = make_request(operation="messages", input_tokens=tokens, max_output_tokens=32_000)
    with pytest.raises(ContextTooLong, match=f"^{re.escape(says)}$"):
        decide(asked, make_snapshot())


def test_refusing_says_why_for_each() -> None:
    snapshot = rules("{from: any, min_quality: 0.99, if_none: refuse}")
    with pytest.raises(NoEligibleModel, match=r"local: predicted quality 0\.600 is below 0\.99; mid:"):
        decide(make_request(), snapshot)


def test_direct_names_and_allowed_models() -> None:
    snapshot = rules("{from: any}")
    direct = decide(make_request(requested_model="large"), snapshot)
    assert (direct.decision.rule, direct.decision.model) == ("(direct)", "large")
    with pytest.raises(ModelNotFound, match="one of: large, local, mid"):
        decide(make_request(requested_model="nope"), snapshot)
    with pytest.raises(ModelNotFound):
        decide(make_request(requested_model="large", allowed_models=frozenset({"mid"})), snapshot)
    assert decide(make_request(allowed_models=frozenset({"mid"})), snapshot).decision.model == "mid"


def test_exploration_is_uniform_and_its_propensity_is_exact() -> None:
    snapshot = rules("{from: any, explore: 0.3}")
    seen: dict[str, float] = {}
    counts: dict[str, int] = {}
    for step in range(1000):
        decision = decide(make_request(draw=step / 1000), snapshot).decision
        counts[decision.model] = counts.get(decision.model, 0) + 1
        seen[decision.model] = decision.propensity
    assert counts == {"local": 800, "mid": 100, "large": 100}
    assert seen == pytest.approx({"local": 0.8, "mid": 0.1, "large": 0.1})


@pytest.mark.parametrize("choose", ["min_quality: 0.99", "max_cost_usd: 0.000000001"])
def test_where_no_model_keeps_the_limits_none_is_tried_for_the_learning(choose: str) -> None:
    snapshot = rules(f"{{from: any, {choose}, explore: 0.3}}")
    found = [decide(make_request(draw=step / 100), snapshot).decision for step in range(0, 30, 5)]
    assert {(one.model, one.propensity) for one in found} == {("large" if "quality" in choose else "local", 1.0)}


def test_limits_finer_than_can_be_booked_are_limits() -> None:
    thirds = "max_cost_usd: 0.3333333333333333, explore: 0.1, explore_usd_per_day: 0.33333333333333333"
    decision = decide(make_request(draw=0.05), rules(f"{{from: any, {thirds}}}")).decision
    assert decision.propensity == pytest.approx(0.1 / 3)


def test_no_quality_known_still_decides() -> None:
    choice = decide(make_request(difficulty=None, uncertainty=None, quality={}), rules("{from: any, min_quality: 0.7}"))
    assert choice.decision.model == "local"
    assert choice.decision.predicted_quality is None


def test_a_simulated_model_serves_only_those_who_ask_for_simulation() -> None:
    snapshot = make_snapshot(candidates=[make_local(), make_candidate("mid", is_simulated=True)])
    assert [c.name for c in decide(make_request(), snapshot).order] == ["local"]
    with pytest.raises(ModelNotFound):
        decide(make_request(requested_model="mid"), snapshot)
    asked = decide(make_request(tags=("simulate-hosted",), difficulty=0.9), snapshot)
    assert {c.name for c in asked.order} == {"local", "mid"}


@pytest.mark.parametrize(
    ("allowed", "says"),
    [
        ({"large"}, "this key may use only large, and the rule offers only mid"),
        ({"old", "gone"}, "this key may use only gone, old, none of which exists here, and the rule offers only mid"),
        (set[str](), "this key may use only no model"),
    ],
)
def test_a_key_whose_models_the_rule_does_not_offer_is_told_so(allowed: set[str], says: str) -> None:
    with pytest.raises(NoCapableModel, match=says):
        decide(make_request(allowed_models=frozenset(allowed)), rules("{from: [mid]}"))


@pytest.mark.parametrize("allowed", [None, frozenset({"mid"})])
def test_a_rule_whose_models_are_switched_off_says_so(allowed: frozenset[str] | None) -> None:
    snapshot = make_snapshot(
        "version: 1\nrules:\n  - {name: default, choose: {from: hosted}}\n", candidates=[make_local()]
    )
    with pytest.raises(NoEligibleModel, match="none of its models is available") as refused:
        decide(make_request(allowed_models=allowed), snapshot)
    assert not isinstance(refused.value, NoCapableModel)


def test_every_condition_has_its_meaning() -> None:
    assert HOLDS.keys() == When.model_fields.keys()


def test_of_rules_one_a_team_a_request_weighs_only_those_it_can_meet_and_finds_the_first() -> None:
    apart = [
        ("team", {"team": "t7"}, {"team": "other"}),
        ("project", {"project": "p7"}, {"team": "t7", "project": "other"}),
        ("key", {"key_id": "k7"}, {"key_id": "other", "team": "t7"}),
        ("tags", {"tags": ("g7", "unnamed")}, {"tags": ("unnamed",)}),
        ("operation", {"operation": "messages"}, {"operation": "responses"}),
        ("model", {"requested_model": "gpt-7"}, {"requested_model": "auto"}),
    ]
    values = {"team": "t", "project": "p", "key": "k", "tags": "g", "model": "gpt-"}
    lines = [
        f"  - {{name: {condition}-{number}, when: {{{condition}: [{value}{number}]}}, choose: {{from: [mid]}}}}"
        for condition, value in values.items()
        for number in range(60)
    ]
    by_operation = "  - {name: operation-7, when: {operation: [messages]}, choose: {from: [mid]}}"
    text = "\n".join(["version: 1", "rules:", *lines, by_operation, "  - {name: default, choose: {from: [mid]}}"])
    snapshot = make_snapshot(text)
    for _ in range(2):
        for condition, request, another in apart:
            assert decide(make_request(**request), snapshot).decision.rule == f"{condition}-7"
            assert decide(make_request(**another), snapshot).decision.rule != f"{condition}-7"
    by_kind = snapshot.plans_by_kind.values()
    assert max(map(len, by_kind)) <= 3
    assert len({id(plan) for plans in by_kind for plan in plans if plan.rule.name == "default"}) == 1


def test_what_may_be_chosen_is_remembered_apart_for_other_keys_tags_and_operations_and_not_without_bound() -> None:
    made = [make_candidate("mid"), make_candidate("large"), make_candidate("played", is_simulated=True)]
    snapshot = make_snapshot(candidates=[*made, make_candidate("vectors", supports=frozenset({EMBEDDINGS}))])
    for _ in range(2):
        for asked, models in (
            ({}, {"mid", "large"}),
            ({"allowed_models": frozenset({"large"})}, {"large"}),
            ({"tags": (SIMULATE_TAG,)}, {"mid", "large", "played"}),
            ({"operation": EMBEDDINGS}, {"vectors"}),
        ):
            assert set(decide(make_request(**asked), snapshot).decision.candidates) == models
    for number in range(MOST_POOLS + 1):
        pool_of("any", make_request(allowed_models=frozenset({f"m{number}"})), snapshot)
    assert len(snapshot.pools) <= MOST_POOLS
