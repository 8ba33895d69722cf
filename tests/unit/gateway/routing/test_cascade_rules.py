import pytest

from gateway.errors import ConfigurationError, NoEligibleModel
from gateway.routing.decide import decide
from gateway.routing.rules_text import parse_rules
from gateway.routing.snapshot import Snapshot
from tests.builders import make_candidate, make_local, make_request, make_snapshot

KNOWN = frozenset({"local", "mid", "large"})


def text_of(rule: str) -> str:
    return f"version: 1\nrules:\n  - {{name: first, {rule}}}\n  - {{name: rest, choose: {{from: any}}}}\n"


def snapshot_of(cascade: str, choose: str = "{from: [local, mid]}") -> Snapshot:
    return make_snapshot(f"version: 1\nrules: [{{name: default, choose: {choose}, cascade: {cascade}}}]\n")


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("when: {tags: [x]}, choose: {from: [mid]}, cascade: {escalate_to: [gone]}", "unknown model 'gone'"),
        ("when: {tags: [x]}, choose: {from: [mid]}, cascade: {escalate_to: [mid]}", "name a cheaper one"),
        ("when: {needs: [streaming]}, choose: {from: [mid]}, cascade: {escalate_to: [large]}", "streams only"),
        ("when: {operation: [embeddings]}, choose: {from: [mid]}, cascade: {escalate_to: [large]}", "other operations"),
        (
            "when: {tags: [x]}, choose: {from: [mid]}, cascade: {escalate_to: [large], verify: {format: false}}",
            "verifies nothing",
        ),
        ("when: {tags: [x]}, choose: {from: [mid]}, cascade: {}", "is missing"),
        ("when: {tags: [x]}, choose: {from: [mid], explore_usd_per_day: 1}", "has no effect without `explore`"),
        ("choose: {from: [mid], min_quality: 0.7, explore_min_quality: 0.5}", "has no effect without `explore`"),
        ("choose: {from: [mid], explore: 0.1, explore_min_quality: 0.5}", "unless it is below min_quality"),
    ],
)
def test_a_cascade_that_cannot_happen_is_an_error_in_a_sentence(rule: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        parse_rules(text_of(rule), known_models=KNOWN)
    assert caught.value.line == 3


def test_the_cheap_model_is_asked_first_and_both_are_said() -> None:
    choice = decide(make_request(), snapshot_of("{escalate_to: [large]}"))
    assert (choice.decision.model, choice.decision.escalates_to) == ("local", ("large",))
    assert choice.escalation is not None
    assert [one.name for one in choice.escalation.order] == ["large"]
    assert [one.name for one in choice.order] == ["local", "mid"]


@pytest.mark.parametrize("changes", [{"needs": ("streaming",)}, {"operation": "responses"}])
def test_what_cannot_be_verified_goes_to_the_strong_one(changes: dict[str, object]) -> None:
    choice = decide(make_request(**changes), snapshot_of("{escalate_to: [large]}"))
    assert (choice.decision.model, choice.decision.propensity) == ("large", 1.0)
    assert choice.escalation is None
    assert [one.name for one in choice.order] == ["large", "local", "mid"]
    assert "large" in choice.decision.candidates


def test_one_that_cannot_serve_is_passed_over() -> None:
    snapshot = snapshot_of("{escalate_to: [large, mid]}", "{from: [local]}")
    choice = decide(make_request(backend_state={"large": (-1, 0.0)}), snapshot)
    assert choice.decision.escalates_to == ("mid",)


@pytest.mark.parametrize("changes", [{"allowed_models": frozenset({"local"})}, {"backend_state": {"large": (-1, 0.0)}}])
def test_with_nobody_to_escalate_to_it_is_a_plain_choice(changes: dict[str, object]) -> None:
    choice = decide(make_request(**changes), snapshot_of("{escalate_to: [large]}"))
    assert (choice.decision.model, choice.decision.escalates_to, choice.escalation) == ("local", (), None)


@pytest.mark.parametrize(
    "changes",
    [
        {"backend_state": {"local": (-1, 0.0)}},
        {"needs": ("vision",)},
        {"input_tokens": 9000},
        {"allowed_models": frozenset({"mid", "large"})},
    ],
)
def test_where_none_can_be_asked_first_the_strong_one_is(changes: dict[str, object]) -> None:
    candidates = [make_local(), make_candidate("mid"), make_candidate("large", supports=frozenset({"vision"}))]
    rules = "version: 1\nrules: [{name: default, choose: {from: [local]}, cascade: {escalate_to: [large]}}]\n"
    choice = decide(make_request(**changes), make_snapshot(rules, candidates))
    assert (choice.decision.model, choice.escalation, choice.decision.propensity) == ("large", None, 1.0)
    assert [one.name for one in choice.order] == ["large"]


def test_where_nobody_can_be_asked_the_refusal_names_them_all() -> None:
    down = {"local": (-1, 0.0), "large": (-1, 0.0)}
    with pytest.raises(NoEligibleModel) as caught:
        decide(make_request(backend_state=down), snapshot_of("{escalate_to: [large]}", "{from: [local]}"))
    assert caught.value.reasons == dict.fromkeys(down, "its backend is down")
    with pytest.raises(NoEligibleModel, match="this key may use only mid"):
        decide(
            make_request(allowed_models=frozenset({"mid"})), snapshot_of("{escalate_to: [large]}", "{from: [local]}")
        )


def test_a_choice_of_the_strong_one_needs_no_verification() -> None:
    choice = decide(make_request(), snapshot_of("{escalate_to: [large]}", "{from: any, min_quality: 0.9}"))
    assert (choice.decision.model, choice.escalation) == ("large", None)


def test_a_named_model_is_nobodys_cascade() -> None:
    choice = decide(make_request(requested_model="mid"), snapshot_of("{escalate_to: [large]}"))
    assert choice.escalation is None
