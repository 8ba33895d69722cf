"""A judge model: both orders, within the budget, booked as nobody's, and no verdict where there is none."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from backends.protocol import Call
from backends.scripted import Outcome, Script, ScriptedBackend, follow
from backends.translating import TranslatingBackend
from backends.usage import Usage
from gateway.access.keys import KeyRecord
from gateway.learning import judge_calls
from gateway.learning.judge_calls import RULE, JudgeCalls
from gateway.learning.shadow import ShadowCalls
from gateway.ledger.entry import JUDGE, SHADOW, Entry
from gateway.limits.admission import Admission
from gateway.request.run import Incoming
from gateway.routing.snapshot import Candidate
from gateway.stores import Feedback
from tests.builders import make_candidate, make_prices, make_snapshot
from tests.rig import A, B, RecordingCaller, Rig
from tests.unit.gateway.learning.memory_feedback import NOW_US, PLENTY, MemoryFeedback, shadow_money

J = make_candidate("j", backend="three", prices=make_prices(2.0, 8.0), supports=frozenset({"json_schema"}))
BOTH = "version: 1\nrules: [{name: r, choose: {from: [a, b, j]}}]"


def saying(**changed: Any) -> Outcome:
    verdict = {
        "reason": "",
        "first_is_good_enough": True,
        "second_is_good_enough": False,
        "better": "first",
        **changed,
    }
    return Outcome(pieces=(json.dumps(verdict),), usage=Usage(input_tokens=100, output_tokens=20))


FIRST = saying()
SECOND = saying(first_is_good_enough=False, second_is_good_enough=True, better="second")
"""About a caller's good answer and a bad one: the one verdict and, in the other order, the other."""


class JudgeRig(Rig):
    """Model a answers callers, b is asked again, j judges, and is asked again only where there is nobody else."""

    def __init__(
        self, *verdicts: Outcome, rules: str = BOTH, budget: int = PLENTY, store: MemoryFeedback | None = None,
        judge: Script | None = None, other: Script | None = None, takes_real_time: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            follow([Outcome(pieces=("five",))]),
            other or follow([Outcome(pieces=("six",))]),
            admission=Admission(shadow_pico_usd=budget, wait_seconds=0.0),
        )
        script = judge or follow(verdicts or [FIRST])
        sleep = asyncio.sleep if takes_real_time else self._sleep
        self.three = ScriptedBackend("three", script, keeps_calls=True, sleep=sleep)
        self.pipeline.backends = {**self.pipeline.backends, "three": TranslatingBackend(self.three, native=set())}
        self.pipeline.snapshot = make_snapshot(rules, [A, B, J])
        self.store, self.told = store or MemoryFeedback(), list[str]()
        given: dict[str, Any] = {
            "priced_at": self.pipeline.priced_at, "now_us": lambda: NOW_US, "monotonic": self.pipeline.monotonic
        }  # fmt: skip
        admission, serve = self.pipeline.admission, self.pipeline.serve_apart
        judges = JudgeCalls("j", admission, serve, self.store, told=self.told.append, **given)
        self.pipeline.shadows = self.shadows = ShadowCalls(1.0, admission, serve, self.store, judge=judges, **given)

    async def settled(self, **body: Any) -> list[Entry]:
        """The judge's entries."""
        await self.ask(**body)
        await self.shadows.drain(30.0)
        assert not self.ledger.open
        return [entry for entry in self.ledger.entries if entry.intent.operation == JUDGE]

    def scores(self) -> dict[str, float]:
        models = {entry.intent.request_id: entry.model for entry in self.ledger.entries}
        return {models[one.request_id]: one.score for one in self.store.given}

    def of(self, operation: str) -> Entry:
        [found] = [entry for entry in self.ledger.entries if entry.intent.operation == operation]
        return found


def spent(rig: JudgeRig) -> int:
    return shadow_money(rig.pipeline.admission)


async def test_a_pair_is_judged_in_both_orders_and_becomes_feedback_of_whose_request_it_was() -> None:
    rig = JudgeRig(FIRST, SECOND)
    booked = await rig.settled(stream=True)
    assert rig.told == ["judged"]
    assert rig.scores() == {"a": 1.0, "b": 0.0}
    assert {(one.kind, one.source, one.key_id, one.comment) for one in rig.store.given} == {
        ("label", "judge", "key-1", None)
    }
    one, other = ([part["content"] for part in json.loads(call.body)["messages"]][1] for call in rig.three.calls)
    assert one.index("five") < one.index("six")
    assert other.index("six") < other.index("five")
    assert one.splitlines()[0] != other.splitlines()[0], "each call has a code of its own"
    assert [(entry.model, entry.status) for entry in booked] == [("j", "completed")] * 2
    for entry in booked:
        intent = entry.intent
        assert (intent.key_id, intent.team, intent.tags, intent.decision.rule) == (JUDGE, None, (), RULE)
        assert (intent.decision.facts.difficulty, intent.is_stream, intent.batch_id) == (None, False, None)
    costs = [entry.cost.total_pico_usd for entry in (rig.of(SHADOW), *booked) if entry.cost is not None]
    assert spent(rig) == sum(costs) > 0


@pytest.mark.parametrize(
    ("verdicts", "told", "scores", "calls"),
    [
        ((FIRST, FIRST), "tied", {"a": 0.5, "b": 0.5}, 2),
        ((saying(second_is_good_enough=True), saying(second_is_good_enough=True)), "tied", {"a": 1.0, "b": 1.0}, 2),
        ((Outcome(pieces=("The first one!",)),), "no_verdict", {}, 1),
        ((Outcome(pieces=("I cannot help with that.",)), FIRST), "no_verdict", {}, 1),
        ((FIRST, saying(better="second")), "no_verdict", {}, 2),
        ((Outcome(fault="unavailable"),), "failed", {}, 1),
        ((FIRST, Outcome(fault="garbage")), "failed", {}, 2),
        ((Outcome(fault="truncated", fault_after_pieces=1),), "failed", {}, 1),
    ],
    ids=["by place", "both good", "prose", "refusal", "contradiction", "down", "garbage", "cut off"],
)
async def test_what_is_no_verdict_scores_nothing(
    verdicts: tuple[Outcome, ...], told: str, scores: dict[str, float], calls: int
) -> None:
    rig = JudgeRig(*verdicts)
    booked = await rig.settled()
    assert (rig.told, rig.scores(), len(booked)) == ([told], scores, calls)
    known = sum(entry.cost.total_pico_usd for entry in (rig.of(SHADOW), *booked) if entry.cost is not None)
    assert spent(rig) == known, "what was held and not spent is free again"
    assert len(rig.store.calls) == 1


async def test_the_budget_holds_both_calls_or_neither_is_made() -> None:
    costly = JudgeRig(FIRST, SECOND)
    first, _ = await costly.settled(max_tokens=4)
    assert first.intent.cost_bound_pico_usd is not None
    shadow = costly.of(SHADOW).cost
    assert shadow is not None
    enough = shadow.total_pico_usd + 2 * first.intent.cost_bound_pico_usd
    assert len(await JudgeRig(FIRST, SECOND, budget=enough).settled(max_tokens=4)) == 2
    rig = JudgeRig(FIRST, SECOND, budget=enough - 1)
    assert await rig.settled(max_tokens=4) == []
    assert (rig.told, spent(rig)) == (["over_budget"], shadow.total_pico_usd)


async def test_money_is_held_while_the_judge_is_asked() -> None:
    held: list[int] = []

    def asked(call: Call) -> Outcome:
        del call
        held.append(spent(rig))
        return FIRST

    rig = JudgeRig(judge=asked)
    booked = await rig.settled()
    bound, first, shadow = booked[0].intent.cost_bound_pico_usd, booked[0].cost, rig.of(SHADOW).cost
    assert bound is not None
    assert first is not None
    assert shadow is not None
    assert held == [shadow.total_pico_usd + 2 * bound, shadow.total_pico_usd + first.total_pico_usd + bound]


@pytest.mark.parametrize(
    ("rules", "body", "told"),
    [
        ("version: 1\nrules: [{name: r, choose: {from: [a, b]}}]", {}, ["not_allowed"]),
        ("version: 1\nrules: [{name: r, choose: {from: [a, j]}}]", {}, ["own_answer"]),
        ("version: 1\nrules: [{name: r, choose: {from: [a]}}]", {}, []),
        (BOTH, {"messages": [{"role": "user", "content": "long " * 10_000}]}, ["unsuited"]),
        (BOTH, {"model": "a"}, []),
    ],
)
async def test_it_sees_only_what_the_rule_might_send_it_and_judges_no_answer_of_its_own(
    rules: str, body: dict[str, Any], told: list[str]
) -> None:
    rig = JudgeRig(rules=rules)
    asked = [json.loads(call.body)["messages"][0]["role"] for call in rig.three.calls]
    assert await rig.settled(**body) == []
    assert (rig.told, rig.store.given, asked) == (told, [], [])


async def test_a_key_that_may_not_use_the_judge_is_not_judged_by_it() -> None:
    rig = JudgeRig()
    rig.add_key("bk-narrow", KeyRecord("key-3", "narrow", "app", allowed_models=frozenset({"a", "b"})))
    rig.pipeline.keys.replace(rig.records)
    body = b'{"model": "auto", "messages": [{"role": "user", "content": "hello"}]}'
    await rig.pipeline.answer(Incoming("chat.completions", "Bearer bk-narrow", body), RecordingCaller())
    await rig.shadows.drain(30.0)
    assert (rig.told, rig.three.calls) == (["not_allowed"], [])


@pytest.mark.parametrize(
    "left", [[], [replace(J, prices=None)], [replace(J, is_simulated=True)]], ids=["gone", "unpriced", "simulated"]
)
async def test_a_judge_that_went_meanwhile_is_not_asked(left: list[Candidate]) -> None:
    def other(call: Call) -> Outcome:
        del call
        rig.pipeline.snapshot = replace(rig.pipeline.snapshot, candidates={one.name: one for one in (A, B, *left)})
        return Outcome()

    rig = JudgeRig(other=other)
    assert await rig.settled() == []
    assert rig.told == ["no_model"]


async def test_what_a_program_finds_wrong_is_not_good_enough_whatever_the_judge_says() -> None:
    """It judges these pairs too: without them, a model that often gets the form wrong would seem better than it is."""
    both = saying(second_is_good_enough=True, better="neither")
    rig = JudgeRig(both, other=follow([Outcome(pieces=('{"sum": 5}',))]))
    await rig.settled(response_format={"type": "json_object"})
    assert rig.told == ["judged"]
    assert [one.score for one in rig.store.given if one.source == "judge"] == [0.0, 1.0]
    assert "json_object" in json.loads(rig.three.calls[0].body)["messages"][1]["content"]


async def test_pictures_are_not_judged() -> None:
    rig = JudgeRig()
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    seeing = frozenset({"vision", "streaming", "json_schema"})
    rig.pipeline.snapshot = make_snapshot(BOTH, [replace(one, supports=seeing) for one in (A, B, J)])
    await rig.settled(messages=[{"role": "user", "content": [picture]}])
    assert (rig.told, rig.three.calls) == (["unsuited"], [])


async def test_a_judge_that_takes_too_long_is_given_up_and_booked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_calls, "LONGEST_SECONDS", 0.01)
    rig = JudgeRig(Outcome(fault="stalled", fault_after_pieces=1), takes_real_time=True)
    [entry] = await rig.settled()
    assert (rig.told, entry.status) == (["failed"], "cancelled")
    assert spent(rig) > 0


async def test_a_gateway_that_stops_waits_only_so_long_and_books_what_it_gives_up() -> None:
    rig = JudgeRig(Outcome(fault="stalled", fault_after_pieces=1), takes_real_time=True)
    await rig.ask()
    await rig.shadows.drain(0.05)
    [entry] = [entry for entry in rig.ledger.entries if entry.intent.operation == JUDGE]
    shadow, bound = rig.of(SHADOW).cost, entry.intent.cost_bound_pico_usd
    assert (entry.status, rig.told, rig.ledger.open) == ("cancelled", [], {})
    assert shadow is not None
    assert bound is not None
    assert shadow.total_pico_usd < spent(rig) <= shadow.total_pico_usd + bound


async def test_a_store_that_is_down_loses_the_verdict_and_nothing_else() -> None:
    class Down(MemoryFeedback):
        async def add(self, batch: Sequence[Feedback]) -> None:
            raise ConnectionError("the database is down")

    rig = JudgeRig(FIRST, SECOND, store=Down())
    assert len(await rig.settled()) == 2
    assert rig.told == ["failed"]


async def test_the_gateway_does_not_stop_before_the_verdict() -> None:
    rig = JudgeRig(FIRST, SECOND)
    caller = await rig.ask()
    assert caller.is_complete
    assert (rig.three.calls, rig.store.given) == ([], []), "the caller waited for nothing"
    await rig.shadows.drain(30.0)
    assert rig.told == ["judged"]
