"""Upstreams that refuse, fail, stay silent or do not answer at all before the first token. In virtual time."""

import asyncio
from itertools import pairwise

import pytest

from backends.protocol import BackendHealth, Timeouts
from backends.scripted import Fault, Outcome, Script, follow
from gateway.ledger.entry import Status
from gateway.limits.admission import Admission
from gateway.limits.values import parse_limits
from gateway.routing.fallback import RetryPolicy
from tests.builders import make_candidate, make_local, make_prices, make_snapshot
from tests.faults.upstream.service import call, timed_rig
from tests.rig import Rig
from tests.virtual_time import now, run

pytestmark = pytest.mark.faults
GOOD = Outcome(first_piece_delay_seconds=0.1)


def refused(seconds: float | None) -> Outcome:
    return Outcome(fault="rate_limited", retry_after_seconds=seconds)


def test_a_retry_after_is_waited_for_to_the_second_where_no_other_model_is_left() -> None:
    async def go() -> None:
        rig = timed_rig(follow([refused(3.0), GOOD]))
        heard = await call(rig.pipeline, model="a", stream=True)
        assert heard.is_complete
        first, second = rig.entry.attempts
        assert (first.outcome, second.outcome) == ("RateLimited", "answered")
        assert second.started_after_seconds == pytest.approx(3.0)

    run(go)


def test_a_longer_retry_after_is_handed_on_and_nobody_else_is_sent_there_until_it_is_over() -> None:
    async def go() -> None:
        rig = timed_rig(follow([refused(30.0), GOOD]))
        heard = await call(rig.pipeline, model="a")
        assert (heard.status, heard.headers["retry-after"]) == (429, "30")
        await asyncio.sleep(10)
        heard = await call(rig.pipeline, model="a")
        assert heard.status == 429, "as whoever met the refusal"
        assert (heard.error["type"], heard.error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        assert heard.headers["retry-after"] == "20"
        assert "a: its backend is full or limits our rate, and asked us to wait" in heard.error["message"]
        assert len(rig.one.calls) == 1, "obeyed"
        heard = await call(rig.pipeline)
        assert (heard.status, heard.headers["x-breakeven-model"]) == (200, "b")
        await asyncio.sleep(20)
        heard = await call(rig.pipeline)
        assert heard.headers["x-breakeven-model"] == "a"

    run(go)


def test_who_comes_while_one_call_tries_a_paused_model_is_told_to_come_back_soon() -> None:
    """Rather than at the time when that call would be given up, a minute later."""

    async def go() -> None:
        slow = Outcome(first_piece_delay_seconds=30.0)
        rig = timed_rig(follow([refused(10.0), slow]))
        await call(rig.pipeline, model="a")
        await asyncio.sleep(10)
        trying = asyncio.create_task(call(rig.pipeline, model="a"))
        await asyncio.sleep(1)
        heard = await call(rig.pipeline, model="a")
        assert (heard.status, heard.headers["retry-after"]) == (429, "1")
        assert (await trying).status == 200

    run(go)


def test_with_another_model_a_rate_limit_costs_no_wait() -> None:
    async def go() -> None:
        rig = timed_rig(follow([refused(3.0)]), follow([GOOD]))
        await call(rig.pipeline, stream=True)
        assert [(one.model, one.outcome) for one in rig.entry.attempts] == [("a", "RateLimited"), ("b", "answered")]
        assert now() == pytest.approx(0.1)

    run(go)


@pytest.mark.parametrize("kind", ["unavailable", "unreachable", "rate_limited", "overloaded"])
@pytest.mark.parametrize("has_breakers", [False, True])
def test_in_a_full_outage_attempts_stay_within_a_fifth_above_requests(kind: Fault, has_breakers: bool) -> None:
    async def go() -> None:
        rig = timed_rig(follow([Outcome(fault=kind)]), follow([Outcome(fault=kind)]))
        requests, saved = 300, rig.pipeline.upstreams.retry_budget.saved
        for _ in range(requests):
            heard = await call(rig.pipeline)
            assert heard.status in (429, 502, 503)
            await asyncio.sleep(0.01)
            if not has_breakers:
                rig.pipeline.upstreams.breakers.clear()
        attempts = len(rig.one.calls) + len(rig.two.calls)
        assert attempts <= 1.2 * requests + saved
        assert attempts < 100 if has_breakers else attempts > requests
        assert len(rig.ledger.entries) <= requests
        assert not rig.ledger.open

    run(go)


@pytest.mark.parametrize("kind", ["unavailable", "overloaded", "unreachable", "silent", "reset"])
def test_with_one_healthy_alternate_nobody_notices_and_the_breaker_opens_probes_and_closes(kind: Fault) -> None:
    async def go() -> None:
        bad, sick = Outcome(fault=kind), True
        rig = timed_rig(
            lambda _: bad if sick else GOOD, follow([GOOD]), retry_policy=RetryPolicy(first_token_seconds=1)
        )
        answered, calls_to_sick = 0, list[float]()
        for _ in range(400):
            before = len(rig.one.calls)
            answered += (await call(rig.pipeline, stream=True)).is_complete
            calls_to_sick += [now()] * (len(rig.one.calls) - before)
            await asyncio.sleep(0.05)
        assert answered >= 0.995 * 400
        assert len([at for at in calls_to_sick if at < calls_to_sick[0] + 2]) <= 5, "opened within five failures"
        gaps = [later - earlier for earlier, later in pairwise(calls_to_sick[4:])]
        assert all(gap >= 2 for gap in gaps), "then only probes"
        assert sorted(gaps) == gaps, "each after a longer pause"
        sick = False
        await asyncio.sleep(61)
        heard = [await call(rig.pipeline, stream=True) for _ in range(3)]
        assert [one.headers["x-breakeven-model"] for one in heard] == ["a", "a", "a"], "closed by its probe"

    run(go)


def test_a_sole_model_is_tried_again_within_seconds_however_long_it_failed() -> None:
    """It used to be left alone for up to 75 seconds more, and its callers were told to come back then."""

    async def go() -> None:
        bad, is_sick = Outcome(fault="unavailable"), True
        rig = timed_rig(lambda _: bad if is_sick else GOOD)
        waits = list[int]()
        while now() < 120.0:
            waits.append(int((await call(rig.pipeline, model="a")).headers.get("retry-after", "0")))
            await asyncio.sleep(1)
        assert max(waits) <= 7
        assert len(rig.one.calls) < 60, "its callers are not let through meanwhile"
        is_sick = False
        came = now()
        while (await call(rig.pipeline, model="a")).status != 200:
            await asyncio.sleep(0.5)
        assert now() - came < 7

    run(go)


def test_a_black_hole_without_any_deadline_ends_at_the_first_byte_timeout() -> None:
    async def go() -> None:
        rig = timed_rig(follow([Outcome(fault="silent")]), follow([GOOD]))
        heard = await call(rig.pipeline, stream=True)
        assert heard.headers["x-breakeven-model"] == "b"
        assert now() == pytest.approx(600.1)
        assert rig.entry.attempts[0].outcome == "UpstreamTimeout"

    run(go)


RULE_WITH_LIMIT = """
version: 1
rules:
  - name: quick
    choose: {from: [a, b], by: order, max_time_to_first_token_seconds: 2}
"""
SLOW = Outcome(first_piece_delay_seconds=50)


def limited(one: Script, two: Script) -> Rig:
    rig = timed_rig(one, two)
    rig.pipeline.snapshot = make_snapshot(RULE_WITH_LIMIT, list(rig.pipeline.snapshot.candidates.values()))
    return rig


def test_a_rules_first_token_limit_fails_over_and_the_silent_attempt_is_closed_and_priced() -> None:
    async def go() -> None:
        rig = limited(follow([SLOW]), follow([GOOD]))
        heard = await call(rig.pipeline, stream=True)
        assert heard.headers["x-breakeven-model"] == "b"
        assert now() == pytest.approx(2.1)
        assert rig.one.open_replies == 0
        late, answered = rig.entry.attempts
        assert (late.outcome, answered.outcome) == ("UpstreamTimeout", "answered")
        assert late.lasted_seconds == pytest.approx(2.0)
        assert late.cost_pico_usd == 6 * 1_000_000, "it had our prompt for two seconds"
        assert rig.entry.cost is not None
        assert rig.entry.cost.other_pico_usd == 6 * 1_000_000

    run(go)


def test_the_last_model_left_is_waited_for_and_a_whole_answer_has_no_first_token_limit() -> None:
    async def go() -> None:
        rig = limited(follow([SLOW]), follow([SLOW]))
        heard = await call(rig.pipeline, stream=True)
        assert heard.headers["x-breakeven-model"] == "b"
        assert now() == pytest.approx(52)
        whole = limited(follow([SLOW]), follow([GOOD]))
        heard = await call(whole.pipeline)
        assert heard.headers["x-breakeven-model"] == "a"

    run(go)


async def hedging(one: Script, two: Script) -> Rig:
    """A rig that has seen model a answer after 0.1 s twenty times."""
    history = follow([GOOD] * 20)
    rig = timed_rig(history, two, retry_policy=RetryPolicy(is_hedging=True))
    for _ in range(20):
        await call(rig.pipeline, stream=True)
    fresh = timed_rig(one, two)
    rig.one, rig.pipeline.backends = fresh.one, {"one": fresh.one, "two": rig.two}
    rig.ledger.entries.clear()
    return rig


def test_a_hedge_starts_when_the_first_is_later_than_usual_and_the_loser_is_cancelled_and_booked() -> None:
    async def go() -> None:
        rig = await hedging(follow([SLOW]), follow([GOOD]))
        began = now()
        heard = await call(rig.pipeline, stream=True)
        assert heard.headers["x-breakeven-model"] == "b"
        assert now() - began == pytest.approx(0.2)
        assert rig.one.open_replies == rig.two.open_replies == 0
        assert rig.pipeline.upstreams.running == {"one": 0, "two": 0}
        assert [(one.model, one.outcome) for one in rig.entry.attempts] == [("b", "answered"), ("a", "called_off")]
        assert rig.entry.attempts[1].cost_pico_usd == 6 * 1_000_000

    run(go)


def test_of_two_that_speak_at_the_same_moment_one_answers_and_the_other_is_closed_and_booked() -> None:
    async def go() -> None:
        rig = await hedging(follow([Outcome(first_piece_delay_seconds=0.2)]), follow([GOOD]))
        heard = await call(rig.pipeline, stream=True)
        assert heard.headers["x-breakeven-model"] == "a"
        assert rig.one.open_replies == rig.two.open_replies == 0
        assert rig.pipeline.upstreams.running == {"one": 0, "two": 0}
        assert [(one.model, one.outcome) for one in rig.entry.attempts] == [("a", "answered"), ("b", "called_off")]

    run(go)


def test_the_first_may_still_win_its_race_and_a_quick_answer_starts_none() -> None:
    async def go() -> None:
        rig = await hedging(
            follow([Outcome(first_piece_delay_seconds=0.15), Outcome(first_piece_delay_seconds=0.05)]), follow([SLOW])
        )
        heard = await call(rig.pipeline, stream=True)
        assert heard.headers["x-breakeven-model"] == "a"
        assert [one.outcome for one in rig.ledger.entries[0].attempts] == ["answered", "called_off"]
        await call(rig.pipeline, stream=True)
        assert len(rig.two.calls) == 1, "the second answer came in time"

    run(go)


def test_whoever_has_a_budget_runs_no_race_and_given_up_attempts_count_against_it() -> None:
    async def go() -> None:
        rig = await hedging(follow([SLOW]), follow([GOOD]))
        rig.pipeline.admission = Admission(limits={"key-1": parse_limits({"budget_usd": "1"})})
        heard = await call(rig.pipeline, stream=True)
        assert heard.headers["x-breakeven-model"] == "a"
        assert len(rig.entry.attempts) == 1

        tight = limited(follow([SLOW]), follow([GOOD]))
        # Two increments of b: 256 tokens at 40 and 12 at 10 micro-dollars each, and 6 of a's prompt at 1.
        enough = (256 * 40 + 12 * 10 + 6) * 1_000_000 / 1e12
        for budget, answers in ((enough * 1.05, "b"), (enough * 0.9, "a")):
            tight.pipeline.admission = Admission(limits={"key-1": parse_limits({"budget_usd": f"{budget:.9f}"})})
            heard = await call(tight.pipeline, stream=True)
            assert heard.headers["x-breakeven-model"] == answers

    run(go)


def test_one_that_fails_in_a_race_leaves_it_to_the_other() -> None:
    async def go() -> None:
        rig = await hedging(follow([Outcome(fault="silent")]), follow([SLOW]))
        rig.pipeline.timeouts = {"one": Timeouts(first_byte_seconds=5)}
        heard = await call(rig.pipeline, stream=True)
        assert heard.headers["x-breakeven-model"] == "b"
        assert heard.is_complete
        assert [(one.model, one.outcome) for one in rig.entry.attempts] == [("a", "UpstreamTimeout"), ("b", "answered")]

    run(go)


def test_a_full_or_dead_engine_overflows_to_a_hosted_model_at_once() -> None:
    async def go() -> None:
        local = make_local("mine", backend="one")
        hosted = make_candidate("theirs", backend="two", prices=make_prices())
        rig = timed_rig(follow([GOOD]), follow([GOOD]), classifier=None)
        rig.pipeline.snapshot = make_snapshot(candidates=[local, hosted])
        health = rig.pipeline.upstreams.health
        health["one"] = BackendHealth(True, free_slots=1, running_requests=0)
        assert (await call(rig.pipeline)).headers["x-breakeven-model"] == "mine"
        health["one"] = BackendHealth(True, free_slots=0, running_requests=1)
        assert (await call(rig.pipeline)).headers["x-breakeven-model"] == "theirs", "no slot: overflow at once"
        health["one"] = BackendHealth(False, "killed")
        assert (await call(rig.pipeline)).headers["x-breakeven-model"] == "theirs", "killed: overflow"

    run(go)


def test_a_hung_engine_is_given_up_at_the_deadline_and_then_avoided() -> None:
    async def go() -> None:
        local = make_local("mine", backend="one")
        hosted = make_candidate("theirs", backend="two", prices=make_prices())
        rig = timed_rig(
            follow([Outcome(fault="silent")]),
            follow([GOOD]),
            classifier=None,
            retry_policy=RetryPolicy(first_token_seconds=4),
        )
        rig.pipeline.snapshot = make_snapshot(candidates=[local, hosted])
        rig.pipeline.upstreams.health["one"] = BackendHealth(True, free_slots=8, running_requests=0)
        for _ in range(8):
            heard = await call(rig.pipeline, stream=True)
            assert heard.headers["x-breakeven-model"] == "theirs"
        assert len(rig.one.calls) == 5, "the breaker is open"
        assert all(entry.status is Status.completed for entry in rig.ledger.entries)
        assert rig.ledger.entries[0].cost is not None
        assert rig.ledger.entries[0].cost.other_pico_usd == 0, "our own engine bills nobody; it idles"

    run(go)
