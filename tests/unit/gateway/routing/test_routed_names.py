"""Requests that name a model are answered by it, unless a rule routes that name."""

import json
from typing import Any

import msgspec
import pytest

from backends.scripted import Outcome, follow
from gateway.economics.replay.log import logged_request_of
from gateway.economics.replay.replay import replay
from gateway.errors import ConfigurationError, ModelNotFound, NoEligibleModel, UpstreamFailed
from gateway.limits.admission import Admission
from gateway.limits.values import Rates, SharedLimits
from gateway.reports.replay_service import scenario_of
from gateway.request.run import Incoming
from gateway.routing.decide import DIRECT, decide
from gateway.routing.rules_text import parse_rules
from tests.builders import make_candidate, make_prices, make_request, make_snapshot
from tests.rig import KEY, A, B, RecordingCaller, Rig
from tests.unit.gateway.ledger.builders import make_decision, make_entry, make_facts, make_intent

RULES = """version: 1
rules:
  - {name: cheaper, when: {model: [large, gpt-4o]}, choose: {from: [mid, large]}}
  - {name: seen, when: {model: [auto, mid], tags: [seen]}, choose: {from: [large]}}
  - {name: tagged, when: {tags: [x]}, choose: {from: [large]}}
  - {name: default, choose: {from: [mid]}}
"""
LAST = "{name: z, choose: {from: any}}"
A_OR_B = f"version: 1\nrules: [{{name: %s, when: {{model: [%s]}}, choose: {{from: [a, b], by: order}}}}, {LAST}]"


@pytest.mark.parametrize(
    ("named", "tags", "rule", "model"),
    [
        ("auto", (), "default", "mid"),
        ("auto", ("x",), "tagged", "large"),
        ("auto", ("seen",), "seen", "large"),
        ("large", (), "cheaper", "mid"),
        ("gpt-4o", (), "cheaper", "mid"),
        ("mid", (), DIRECT, "mid"),
        ("mid", ("x",), DIRECT, "mid"),
        ("mid", ("seen",), "seen", "large"),
        ("local", ("x", "seen"), DIRECT, "local"),
    ],
)
def test_a_named_model_is_routed_by_rules_for_it_alone(
    named: str, tags: tuple[str, ...], rule: str, model: str
) -> None:
    decision = decide(make_request(requested_model=named, tags=tags), make_snapshot(RULES)).decision
    assert (decision.rule, decision.model) == (rule, model)


def test_what_no_rule_takes_and_no_model_is_called_is_not_found() -> None:
    only_tagged = (
        f"version: 1\nrules: [{{name: a, when: {{model: [gpt-4o], tags: [x]}}, choose: {{from: any}}}}, {LAST}]"
    )
    with pytest.raises(ModelNotFound, match="gpt-4o"):
        decide(make_request(requested_model="gpt-4o"), make_snapshot(only_tagged))


def test_a_key_is_served_by_its_own_models_whatever_name_it_asks_for() -> None:
    snapshot = make_snapshot(RULES)
    asked = make_request(requested_model="gpt-4o", allowed_models=frozenset({"large"}))
    assert decide(asked, snapshot).decision.model == "large"
    with pytest.raises(NoEligibleModel):
        decide(make_request(requested_model="gpt-4o", allowed_models=frozenset({"local"})), snapshot)


@pytest.mark.parametrize(
    ("above", "below", "is_taken"),
    [
        ("{tags: [x]}", "{tags: [x], model: [gpt-4o]}", False),
        ("{model: [gpt-4o]}", "{tags: [x], model: [gpt-4o]}", True),
        ("{model: [gpt-4o, mid]}", "{model: [mid]}", True),
        ("{model: [mid]}", "{model: [mid, gpt-4o]}", False),
        ("{model: [mid]}", "{tags: [x]}", False),
        ("{model: [auto, mid]}", "{tags: [x]}", True),
        ("{tags: [x]}", "{tags: [x], model: [auto]}", True),
    ],
)
def test_a_rule_for_names_is_taken_by_rules_for_them_alone(above: str, below: str, is_taken: bool) -> None:
    whens = "".join(f"  - {{name: r{n}, when: {one}, choose: {{from: any}}}}\n" for n, one in enumerate((above, below)))
    text = f"version: 1\nrules:\n{whens}  - {{name: default, choose: {{from: any}}}}\n"
    if not is_taken:
        assert parse_rules(text)
        return
    with pytest.raises(ConfigurationError, match="can never match: 'r0' above takes every such request"):
        parse_rules(text)


@pytest.mark.parametrize("wrong", ["[]", "[a, a]", "[a b]", "['']"])
def test_names_are_names(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=r"rules\.0\.when\.model"):
        parse_rules(A_OR_B.replace("[%s]", wrong) % "x", known_models=frozenset("ab"))


async def ask(rig: Rig, model: str, **fields: Any) -> RecordingCaller:
    caller = RecordingCaller()
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], **fields}
    await rig.pipeline.answer(Incoming("chat.completions", f"Bearer {KEY}", json.dumps(body).encode()), caller)
    return caller


@pytest.mark.parametrize("named", ["a", "gpt-4o"])
async def test_a_named_model_that_fails_has_others_behind_it(named: str) -> None:
    failing = follow([Outcome(fault="unreachable")])
    alone = Rig(failing)
    with pytest.raises(UpstreamFailed if named == "a" else ModelNotFound):
        await ask(alone, named)
    rig = Rig(failing)
    rig.pipeline.snapshot = make_snapshot(A_OR_B % ("behind", named), [A, B])
    answered = await ask(rig, named)
    assert (answered.headers["x-breakeven-model"], answered.headers["x-breakeven-rule"]) == ("b", "behind")
    assert rig.entry.intent.requested_model == named
    assert json.loads(rig.two.calls[-1].body)["model"] == named, "adapters put their own name in its place"


async def test_a_model_at_its_limit_is_left_out_as_with_auto() -> None:
    rig = Rig(admission=Admission(shared=SharedLimits(models={"a": Rates(requests_per_minute=1)})))
    rig.pipeline.snapshot = make_snapshot(A_OR_B % ("behind", "gpt-4o"), [A, B])
    found = [(await ask(rig, "gpt-4o")).headers["x-breakeven-model"] for _ in range(3)]
    assert found == ["a", "b", "b"]


def test_a_replay_says_what_routing_them_would_have_done() -> None:
    """Before any rule routes names: for apps that still name the model they always used."""
    text = f"version: 1\nrules: [{{name: r, when: {{model: [large]}}, choose: {{from: any}}}}, {LAST}]"
    snapshot = make_snapshot(text, [make_candidate("large", prices=make_prices(10, 40)), make_candidate("mid-hosted")])
    facts = make_facts(quality={"large": 0.9, "mid-hosted": 0.8})
    decision = make_decision(rule=DIRECT, model="large", candidates=("large",), facts=facts)
    intents = [
        make_intent(number, requested_model=named, decision=decision)
        for number, named in enumerate(("large", "mid-hosted", "gone"))
    ]
    entries = [
        msgspec.structs.replace(make_entry(place, intent=one), model="large") for place, one in enumerate(intents)
    ]
    diff = replay([logged_request_of(one) for one in entries], scenario_of(snapshot))
    assert (diff.replayed.requests_by_model, diff.refused) == ({"mid-hosted": 2}, 1)


def test_which_names_are_routed() -> None:
    assert make_snapshot(RULES).routed_names == {"auto", "large", "mid", "gpt-4o"}
    assert make_snapshot().routed_names == {"auto"}
