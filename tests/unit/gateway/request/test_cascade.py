"""A cascade on the whole path: two attempts, one entry, with the cost of both."""

import asyncio
import json
import threading
from typing import Any

import pytest

from backends.scripted import Fault, Outcome, Script, ScriptedBackend, follow
from gateway.errors import BudgetExhausted, UpstreamFailed
from gateway.ledger.entry import Status
from gateway.limits.admission import Admission
from gateway.limits.values import SharedLimits, parse_limits
from gateway.routing.decide import decide
from gateway.routing.snapshot import request_facts_of
from tests.builders import make_local, make_snapshot
from tests.rig import A, B, Rig

USUAL = "{escalate_to: [b]}"
A_COST = 12 * 1_000_000 + 4 * 4_000_000
B_COST = 10 * A_COST
PATIENCE_SECONDS = 60.0
EMPTY = follow([Outcome(pieces=())])


def rig_with(
    one: Script | None = None, two: Script | None = None, *, cascade: str = USUAL, when: str = "", **more: Any
) -> Rig:
    rig = Rig(one, two, **more)
    last = "  - {name: rest, choose: {from: [b]}}\n" if when else ""
    rules = f"version: 1\nrules:\n  - {{name: middle, {when}choose: {{from: [a]}}, cascade: {cascade}}}\n{last}"
    rig.pipeline.snapshot = make_snapshot(rules, [A, B])
    return rig


def fault(kind: Fault) -> Script:
    return follow([Outcome(fault=kind)])


def content_of(body: bytes) -> str:
    return json.loads(body)["choices"][0]["message"]["content"]


async def test_an_answer_that_stands_is_passed_on_and_nobody_else_is_asked() -> None:
    rig = rig_with()
    caller = await rig.ask()
    entry = rig.entry
    assert (entry.model, entry.intent.decision.model, entry.intent.decision.escalates_to) == ("a", "a", ("b",))
    assert [attempt.outcome for attempt in entry.attempts] == ["answered"]
    assert entry.cost is not None
    assert entry.cost.total_pico_usd == A_COST
    assert not rig.two.calls
    assert "x-breakeven-escalated-from" not in caller.headers
    assert json.loads(rig.one.calls[0].body) == {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}


async def test_one_that_does_not_is_charged_beside_the_one_that_is_passed_on() -> None:
    rig = rig_with(EMPTY)
    caller = await rig.ask()
    entry = rig.entry
    assert (entry.status, entry.model, entry.intent.decision.model) == (Status.completed, "b", "a")
    assert content_of(caller.body) == "Hello, world."
    assert caller.headers["x-breakeven-model"] == "b"
    assert caller.headers["x-breakeven-escalated-from"] == "a"
    assert [(one.number, one.model, one.outcome, one.cost_pico_usd) for one in entry.attempts] == [
        (1, "a", "escalated:empty", A_COST),
        (2, "b", "answered", 0),
    ]
    assert entry.cost is not None
    assert (entry.cost.total_pico_usd, entry.cost.other_pico_usd) == (A_COST + B_COST, A_COST)
    assert (entry.cost_lower_pico_usd, entry.cost_upper_pico_usd) == (A_COST + B_COST, A_COST + B_COST)
    assert not entry.is_usage_estimated
    assert rig.pipeline.upstreams.running == {"one": 0, "two": 0}
    assert (rig.one.open_replies, rig.two.open_replies) == (0, 0)


@pytest.mark.parametrize(
    ("body", "first", "passed_on"),
    [
        ({"response_format": {"type": "json_object"}}, Outcome(pieces=("{}",)), "a"),
        ({"response_format": {"type": "json_object"}}, Outcome(pieces=("Sure: {}",)), "b"),
        ({"tools": [], "tool_choice": "required"}, Outcome(), "b"),
        ({}, Outcome(finish_reason="length"), "b"),
    ],
)
async def test_what_the_request_asked_for_is_verified(body: dict[str, Any], first: Outcome, passed_on: str) -> None:
    rig = rig_with(follow([first]))
    await rig.ask(**body)
    assert rig.entry.model == passed_on


@pytest.mark.parametrize(("logprob", "passed_on"), [(-0.2, "a"), (-0.9, "b")])
@pytest.mark.parametrize("asked", [False, True])
async def test_log_probabilities_are_asked_for_and_shown_only_to_who_asked(
    logprob: float, passed_on: str, asked: bool
) -> None:
    script = follow([Outcome(logprobs=(logprob,) * 4)])
    rig = rig_with(script, script, cascade="{escalate_to: [b], verify: {min_mean_logprob: -0.5}}")
    caller = await (rig.ask(logprobs=True) if asked else rig.ask())
    assert rig.entry.model == passed_on
    assert json.loads(rig.one.calls[0].body)["logprobs"] is True
    assert all("logprobs" in json.loads(call.body) for call in rig.two.calls) is (asked or passed_on == "a")
    shown = json.loads(caller.body)["choices"][0].get("logprobs")
    assert (shown is not None) is asked


async def test_an_answer_without_log_probabilities_does_not_stand() -> None:
    rig = rig_with(cascade="{escalate_to: [b], verify: {min_mean_logprob: -0.5}}")
    await rig.ask()
    assert rig.entry.attempts[0].outcome == "escalated:no_logprobs"
    assert rig.entry.model == "b"


@pytest.mark.parametrize("kind", ["unavailable", "rejected", "silent"])
async def test_a_model_that_fails_is_escalated_like_one_that_says_nothing_good(kind: Fault) -> None:
    rig = rig_with(fault(kind))
    await rig.ask()
    entry = rig.entry
    assert (entry.status, entry.model) == (Status.completed, "b")
    assert [one.number for one in entry.attempts] == list(range(1, len(entry.attempts) + 1))
    assert rig.pipeline.upstreams.running == {"one": 0, "two": 0}


async def test_where_nobody_stronger_answers_the_weak_answer_is_better_than_none() -> None:
    rig = rig_with(follow([Outcome(finish_reason="length")]), fault("unavailable"))
    caller = await rig.ask()
    entry = rig.entry
    assert (entry.status, entry.model) == (Status.completed, "a")
    assert content_of(caller.body) == "Hello, world."
    assert [one.outcome for one in entry.attempts] == ["answered", "UpstreamUnavailable", "UpstreamUnavailable"]
    assert entry.cost is not None
    assert (entry.cost.total_pico_usd, entry.cost.other_pico_usd) == (A_COST, 0)
    assert not entry.is_usage_estimated
    assert "x-breakeven-escalated-from" not in caller.headers
    assert rig.pipeline.upstreams.running == {"one": 0, "two": 0}


async def test_where_nobody_answers_at_all_the_caller_hears_it_once() -> None:
    rig = rig_with(fault("unavailable"), fault("rejected"))
    with pytest.raises(UpstreamFailed) as caught:
        await rig.ask()
    assert caught.value.status == 400
    assert rig.entry.status is Status.failed


async def test_a_caller_that_leaves_while_the_stronger_model_thinks_pays_for_the_first() -> None:
    asked = asyncio.Event()

    async def never(seconds: float) -> None:
        asked.set()
        await asyncio.Event().wait()

    rig = rig_with(EMPTY)
    rig.pipeline.backends = {"one": rig.one, "two": ScriptedBackend("two", follow([Outcome()]), sleep=never)}
    task = asyncio.create_task(rig.ask())
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    entry = rig.entry
    assert (entry.status, entry.model) == (Status.cancelled, "b")
    assert entry.attempts[0].outcome == "escalated:empty"
    assert entry.cost is not None
    assert entry.cost.other_pico_usd == A_COST
    assert entry.cost_lower_pico_usd is not None
    assert entry.cost_lower_pico_usd >= A_COST
    assert rig.pipeline.upstreams.running == {"one": 0, "two": 0}


async def test_a_caller_that_leaves_while_the_answer_is_verified_leaves_no_call_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow_objection(*_: object) -> None:
        begun.set()
        may_end.wait(PATIENCE_SECONDS)

    monkeypatch.setattr("gateway.request.cascade.objection", slow_objection)
    rig = rig_with()
    task = asyncio.create_task(rig.ask())
    assert await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    may_end.set()
    entry = rig.entry
    assert entry.cost is not None
    assert (entry.status, entry.model, entry.cost.total_pico_usd) == (Status.cancelled, "a", A_COST)
    assert rig.pipeline.upstreams.running == {"one": 0}


@pytest.mark.parametrize("body", [{"stream": True}])
async def test_what_cannot_be_verified_goes_to_the_stronger_model_at_once(body: dict[str, Any]) -> None:
    rig = rig_with(EMPTY)
    await rig.ask(**body)
    assert (rig.entry.model, rig.entry.intent.decision.model) == ("b", "b")
    assert not rig.one.calls
    assert rig.entry.intent.decision.escalates_to == ()


@pytest.mark.parametrize("stream", [False, True])
async def test_every_such_decision_replays(stream: bool) -> None:
    rig = rig_with(EMPTY)
    await rig.ask(stream=stream)
    assert decide(request_facts_of(rig.entry.intent), rig.pipeline.snapshot).decision == rig.entry.intent.decision


def limited(budget_usd: str) -> Admission:
    return Admission(limits={"key-1": parse_limits({"budget_usd": budget_usd})}, wait_seconds=0.0)


async def test_the_money_of_both_is_held_before_the_first_is_asked() -> None:
    plain, cascaded = Rig(), rig_with(EMPTY)
    await plain.ask(max_tokens=50)
    await cascaded.ask(max_tokens=50)
    first, both = plain.entry.intent.cost_bound_pico_usd, cascaded.entry.intent.cost_bound_pico_usd
    assert first is not None
    assert both is not None
    assert both == pytest.approx(first + 10 * first)
    enough = rig_with(EMPTY, admission=limited(f"{both / 1e12:.12f}"))
    await enough.ask(max_tokens=50)
    assert enough.entry.model == "b"
    short = rig_with(EMPTY, admission=limited(f"{(both - 1) / 1e12:.12f}"))
    with pytest.raises(BudgetExhausted):
        await short.ask(max_tokens=50)
    assert not short.one.calls


async def test_many_at_once_never_spend_more_than_the_budget() -> None:
    budget = 3_000_000_000
    rig = rig_with(EMPTY, admission=limited(f"{budget / 1e12:.12f}"))
    results = await asyncio.gather(*(rig.ask(max_tokens=5) for _ in range(40)), return_exceptions=True)
    spent = sum(entry.cost.total_pico_usd for entry in rig.ledger.entries if entry.cost)
    assert 0 < spent <= budget
    assert any(isinstance(one, BudgetExhausted) for one in results)


async def test_a_quota_of_the_stronger_tier_caps_escalation() -> None:
    shared = SharedLimits(tiers={"premium": frozenset({"b"})})
    quota = parse_limits({"tier_quotas": {"premium": {"requests": 2, "window": "day"}}})
    rig = rig_with(EMPTY, admission=Admission(limits={"key-1": quota}, shared=shared, wait_seconds=0.0))
    for _ in range(4):
        await rig.ask()
    assert "".join(entry.model for entry in rig.ledger.entries) == "bbaa", "then the answer of a, unverified"
    good = rig_with(admission=Admission(limits={"key-1": quota}, shared=shared, wait_seconds=0.0))
    for _ in range(4):
        await good.ask()
    assert "".join(entry.model for entry in good.ledger.entries) == "aaaa"
    assert all(entry.intent.decision.escalates_to for entry in good.ledger.entries), "no quota was used up"


async def test_an_own_engines_refused_answer_is_in_its_rent_and_not_charged_again() -> None:
    rig = rig_with(EMPTY)
    rules = "version: 1\nrules: [{name: middle, choose: {from: [a]}, cascade: {escalate_to: [b]}}]\n"
    rig.pipeline.snapshot = make_snapshot(rules, [make_local("a", backend="one"), B])
    await rig.ask()
    assert rig.entry.cost is not None
    assert (rig.entry.model, rig.entry.cost.total_pico_usd, rig.entry.attempts[0].cost_pico_usd) == ("b", B_COST, 0)
