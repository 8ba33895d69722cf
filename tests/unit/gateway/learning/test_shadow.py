"""Shadow calls: off the request path, under a cap, with their propensity, and booked to no key."""

import asyncio
import json
import random
from dataclasses import replace
from typing import Any

import pytest

from backends.protocol import Call
from backends.scripted import Outcome, Script, follow
from backends.usage import Usage
from gateway.errors import BudgetExhausted, ConfigurationError
from gateway.instants import DAY_US
from gateway.learning.shadow import RULE, ShadowCalls, money_for
from gateway.learning.verify import answer_text, judge
from gateway.ledger.entry import SHADOW, Entry, Intent
from gateway.limits.admission import Admission
from gateway.limits.counters import budget_account
from gateway.limits.values import window_id
from gateway.pricing.price import price
from gateway.request.run import Incoming
from gateway.routing.rules_text import parse_rules
from gateway.routing.snapshot import CacheWrites
from tests.builders import make_prices, make_snapshot
from tests.rig import KEY, A, B, RecordingCaller, Rig
from tests.unit.gateway.learning.answer_bodies import answer, message, message_stream, streamed
from tests.unit.gateway.learning.memory_feedback import NOW_US, PLENTY, MemoryFeedback, shadow_money
from tests.unit.gateway.ledger.builders import make_intent


class ShadowRig(Rig):
    """Every request is sampled, unless stated otherwise."""

    def __init__(
        self, one: Script | None = None, two: Script | None = None, *, share: float = 1.0, budget: int = PLENTY,
        store: MemoryFeedback | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            one, two, admission=Admission(shadow_pico_usd=budget, wait_seconds=0.0), records_end_users=True
        )
        self.store = store or MemoryFeedback()
        self.shadows = ShadowCalls(
            share,
            self.pipeline.admission,
            self.pipeline.serve_apart,
            self.store,
            priced_at=self.pipeline.priced_at,
            now_us=lambda: NOW_US,
            monotonic=self.pipeline.monotonic,
            generator=random.Random(7),
        )
        self.pipeline.shadows = self.shadows

    async def ask_twice(self, **body: Any) -> tuple[Entry, list[Entry]]:
        """The caller's entry and the shadow ones."""
        await self.ask(**body)
        await self.shadows.drain(30.0)
        own = [entry for entry in self.ledger.entries if entry.intent.operation != SHADOW]
        return own[0], [entry for entry in self.ledger.entries if entry.intent.operation == SHADOW]


def spent(rig: ShadowRig) -> int:
    return shadow_money(rig.pipeline.admission)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_other_model_is_asked_and_booked_as_nobodys(stream: bool) -> None:
    rig = ShadowRig()
    shown, [shadow] = await rig.ask_twice(stream=stream)
    assert {shown.model, shadow.model} == {"a", "b"}
    intent = shadow.intent
    assert (intent.key_id, intent.team, intent.tags, intent.is_stream) == (SHADOW, None, (), False)
    assert (intent.decision.rule, intent.decision.propensity) == (RULE, 1.0)
    with pytest.raises(ConfigurationError, match="name"):
        parse_rules(f"version: 1\nrules: [{{name: {RULE}, choose: {{from: any}}}}]")
    assert shadow.cost is not None
    assert shadow.cost.total_pico_usd > 0
    [call] = rig.store.calls
    assert (call.request_id, call.of_request_id) == (intent.request_id, shown.intent.request_id)
    assert call.propensity == 1.0
    assert not rig.ledger.open
    asked = json.loads((rig.two if shadow.backend == "two" else rig.one).calls[-1].body)
    assert "stream" not in asked


async def test_it_is_of_no_batch_and_for_no_end_user_whatever_it_repeats() -> None:
    """Their cost would include it."""
    rig = ShadowRig()
    body = b'{"model": "auto", "messages": [{"role": "user"}], "user": "user-7"}'
    incoming = Incoming("chat.completions", f"Bearer {KEY}", body, batch_id="batch")
    await rig.pipeline.answer(incoming, RecordingCaller())
    await rig.shadows.drain(30.0)
    intents = {entry.intent.operation: entry.intent for entry in rig.ledger.entries}
    booked = {name: (intent.batch_id, intent.end_user) for name, intent in intents.items()}
    assert booked == {"chat.completions": ("batch", "user-7"), SHADOW: (None, None)}


async def test_its_prompt_is_not_marked_for_a_cache_that_no_next_turn_will_read() -> None:
    rig = ShadowRig()
    writes = CacheWrites("gateway", 1)
    rig.pipeline.marks_prompts = True
    rig.pipeline.snapshot = make_snapshot(
        "version: 1\nrules: [{name: r, choose: {from: [a, b]}}]",
        [replace(A, cache_writes=writes), replace(B, cache_writes=writes)],
    )
    own, [shadow] = await rig.ask_twice(tools=[{"type": "function", "function": {"name": "f"}}])
    [asked], [again] = (one.calls for one in ((rig.one, rig.two) if own.model == "a" else (rig.two, rig.one)))
    assert (asked.cache_marks, again.cache_marks) == ("conversation", "")
    assert shadow.intent.decision.facts.repeated_tokens == 0


async def test_it_costs_its_own_usage_at_its_own_models_price_of_its_own_time() -> None:
    """Prices change while the caller's answer is in progress."""
    usage = {"one": Usage(input_tokens=1000, output_tokens=10), "two": Usage(input_tokens=900, output_tokens=70)}
    dearer = [replace(A, prices=make_prices(30.0, 50.0)), replace(B, prices=make_prices(70.0, 90.0))]

    def script(backend: str) -> Script:
        def answer(call: Call) -> Outcome:
            del call
            now = rig.pipeline.snapshot
            candidates = {candidate.name: candidate for candidate in dearer}
            rig.pipeline.snapshot = replace(now, candidates=candidates, prices_version="new")
            return Outcome(usage=usage[backend])

        return answer

    rig = ShadowRig(script("one"), script("two"))
    old = rig.pipeline.snapshot
    shown, [shadow] = await rig.ask_twice()
    [new_prices] = [candidate.prices for candidate in dearer if candidate.name == shadow.model]
    old_prices = old.candidates[shown.model].prices
    assert new_prices is not None
    assert old_prices is not None
    assert (shown.cost, shown.intent.decision.prices_version) == (price(usage[shown.backend], old_prices), "prices-1")
    assert (shadow.cost, shadow.intent.decision.prices_version) == (price(usage[shadow.backend], new_prices), "new")
    assert spent(rig) == price(usage[shadow.backend], new_prices).total_pico_usd


async def test_a_model_that_went_meanwhile_is_not_asked() -> None:
    def answer(call: Call) -> Outcome:
        del call
        rig.pipeline.snapshot = replace(rig.pipeline.snapshot, candidates={})
        return Outcome()

    rig = ShadowRig(answer, answer)
    assert (await rig.ask_twice())[1] == []


async def test_the_caller_sees_one_answer_and_waits_for_nothing() -> None:
    plain, rig = Rig(), ShadowRig()
    without = await plain.ask()
    with_shadow = await rig.ask()
    contents = [json.loads(one.body)["choices"] for one in (without, with_shadow)]
    assert contents[0] == contents[1]
    assert len(rig.ledger.entries) == 1, "the second call has not begun when the first answer has ended"
    await rig.shadows.drain(30.0)
    assert len(rig.ledger.entries) == 2


async def test_the_share_is_the_propensity() -> None:
    rig = ShadowRig(share=0.25)
    for _ in range(200):
        await rig.ask()
        await rig.shadows.drain(30.0)
    assert 30 <= len(rig.store.calls) <= 70
    assert {call.propensity for call in rig.store.calls} == {0.25}
    assert (await ShadowRig(share=0.0).ask_twice())[1] == []


async def test_the_cap_holds_and_what_was_not_needed_is_given_back() -> None:
    rig = ShadowRig()
    _, [first] = await rig.ask_twice()
    assert first.cost is not None
    assert spent(rig) == first.cost.total_pico_usd
    assert first.intent.cost_bound_pico_usd is not None
    tight = ShadowRig(budget=first.intent.cost_bound_pico_usd - 1)
    assert (await tight.ask_twice())[1] == []
    assert spent(tight) == 0


def shadow_intent(number: int, bound_pico_usd: int = 1000, *, day: int = 0) -> Intent:
    at_us = NOW_US + day * DAY_US
    return make_intent(number, key_id=SHADOW, team=None, accepted_at_us=at_us, cost_bound_pico_usd=bound_pico_usd)


async def test_a_day_has_its_own_money_also_while_calls_are_under_way_and_after_the_clock_was_put_back() -> None:
    async def has_room(intent: Intent) -> bool:
        try:
            async with money_for(admission, intent):
                admission.settle(intent.request_id, 600)
        except BudgetExhausted:
            return False
        return True

    admission = Admission(shadow_pico_usd=2000, wait_seconds=0.0)
    async with money_for(admission, shadow_intent(1), shadow_intent(2)):
        assert not await has_room(shadow_intent(3))
        assert await has_room(shadow_intent(4, day=1))
        admission.settle(shadow_intent(1).request_id, 900)
    assert [shadow_money(admission, NOW_US + day * DAY_US) for day in (0, 1)] == [900, 600]
    assert await has_room(shadow_intent(5))
    assert not await has_room(shadow_intent(6)), "not once more, though the clock was put back"


async def test_what_the_journal_has_and_the_database_not_yet_is_still_spent_after_a_restart() -> None:
    rig = ShadowRig()
    _, [shadow] = await rig.ask_twice()
    again = Admission(shadow_pico_usd=PLENTY)
    again.carry(shadow)
    assert shadow_money(again, shadow.intent.accepted_at_us) == spent(rig) > 0


async def test_a_strict_budget_over_everything_covers_shadow_calls_too() -> None:
    admission = Admission(strict={("all", ""): 1000}, shadow_pico_usd=PLENTY, wait_seconds=0.0)
    with pytest.raises(BudgetExhausted):
        async with money_for(admission, shadow_intent(1, 1001)):
            raise AssertionError("more than everything may cost")


async def test_no_caller_waits_behind_a_call_that_does_not_fit_while_others_hold_money() -> None:
    async def shadow() -> None:
        async with money_for(admission, shadow_intent(1, 500)):
            raise AssertionError("it does not fit")

    admission = Admission(strict={("all", ""): 1000}, shadow_pico_usd=PLENTY, wait_seconds=60.0)
    await admission.reserve("under way", "key", 600, now_us=NOW_US)
    everything = admission.treasury.purse(budget_account("", window_id("month", NOW_US), scope="all"), 1000)
    everything.give_back()  # as after each report while somebody waits
    task = asyncio.create_task(shadow())
    while not (everything.waiting or task.done()):
        await asyncio.sleep(0)
    await asyncio.wait_for(admission.reserve("small", "key", 300, now_us=NOW_US), 10.0)
    with pytest.raises(BudgetExhausted):
        await task


async def test_a_model_that_was_named_is_not_second_guessed() -> None:
    assert (await ShadowRig().ask_twice(model="a"))[1] == []


async def test_a_failed_shadow_call_is_booked_and_hurts_nobody() -> None:
    rig = ShadowRig(two=follow([Outcome(fault="unavailable")]))
    shown, [shadow] = await rig.ask_twice()
    assert shown.status == "completed"
    assert shadow.status == "failed"
    assert rig.store.calls == []


async def test_a_store_that_is_down_loses_the_pair_and_nothing_else() -> None:
    shown, [shadow] = await ShadowRig(store=MemoryFeedback(fails=True)).ask_twice()
    assert [shown.status, shadow.status] == ["completed", "completed"]


PLAIN = b'{"model": "auto", "messages": []}'
JSON = b'{"model": "auto", "messages": [], "response_format": {"type": "json_object"}}'
MESSAGE_JSON = b'{"model": "auto", "messages": [], "output_config": {"format": {"type": "json_schema"}}}'


@pytest.mark.parametrize(
    ("request_body", "shown", "other", "scores"),
    [
        (PLAIN, answer("Paris"), streamed("Par", "is"), None),
        (PLAIN, answer("Paris"), answer("Rome"), None),
        (PLAIN, answer("  "), answer("Rome"), (0.0, 1.0)),
        (JSON, answer('{"a": 1}'), answer("sure: {"), (1.0, 0.0)),
        (JSON, streamed('{"a"', ": 1}"), answer('{"a": 2}'), (1.0, 1.0)),
        (PLAIN, b'{"error": {}}', answer("Rome"), None),
        (PLAIN, b"", answer("Rome"), None),
        (PLAIN, message(" ", ""), message_stream("par", "is. "), (0.0, 1.0)),
        (PLAIN, message_stream("x", kind="tool_use"), message("Rome"), None),
        (MESSAGE_JSON, message('{"a": 1}'), message("sure: {"), (1.0, 0.0)),
        (PLAIN, b'{"choices": [{"message": {"tool_calls": [{}]}}]}', answer("Rome"), None),
    ],
)
def test_programs_judge_only_what_they_can(
    request_body: bytes, shown: bytes, other: bytes, scores: tuple[float, float] | None
) -> None:
    assert judge(request_body, shown, other) == scores


def test_a_streamed_tool_call_has_no_text() -> None:
    event = json.dumps({"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]})
    assert answer_text(f"data: {event}\n\ndata: [DONE]\n\n".encode()) is None
    assert answer_text(b": still here\n\n" + streamed("a", "b")) == "ab"


async def test_verified_answers_become_feedback_on_both_requests() -> None:
    rig = ShadowRig()
    shown, [shadow] = await rig.ask_twice(response_format={"type": "json_object"})
    given = {one.request_id: one for one in rig.store.given}
    assert given.keys() == {shown.intent.request_id, shadow.intent.request_id}
    told = {(one.kind, one.source, one.score, one.key_id) for one in given.values()}
    assert told == {("verifier", "shadow", 0.0, shown.intent.key_id)}, "the key whose request it was speaks"


async def test_a_message_is_asked_a_second_time_in_its_own_format_and_with_its_headers() -> None:
    rig = ShadowRig()
    body = json.dumps({"model": "auto", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}).encode()
    headers = {"anthropic-beta": "some-beta"}
    caller = RecordingCaller()
    await rig.pipeline.answer(Incoming("messages", f"Bearer {KEY}", body, headers=headers), caller)
    await rig.shadows.drain(30.0)
    assert answer_text(caller.body) == "Hello, world."
    assert [call.headers for call in (*rig.one.calls, *rig.two.calls)] == [headers, headers]
    assert len(rig.store.calls) == 1
    assert rig.store.given == [], "two answers that say the same may both be wrong"
