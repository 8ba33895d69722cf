"""A caller that hangs up at any stage: settled once, upstream released or drained, charged what the provider reports.

In virtual time; the scripted answer sends a piece a second, from second 1 to 4, and settling takes one more.
"""

import asyncio
from dataclasses import dataclass

import pytest

from backends.protocol import Call, Reply
from backends.scripted import Outcome, ScriptedBackend, follow
from backends.usage import Usage
from gateway.ledger.entry import Entry, Status
from gateway.limits.admission import Admission
from gateway.limits.values import parse_limits
from gateway.routing.fallback import RetryPolicy
from tests.builders import make_candidate, make_prices, make_snapshot
from tests.faults.upstream.service import call, timed_rig
from tests.memory_ledger import MemoryLedger
from tests.rig import Rig
from tests.virtual_time import now, run

pytestmark = pytest.mark.faults
ANSWER = Outcome(first_piece_delay_seconds=1.0, piece_delay_seconds=1.0)
REFUSED = Outcome(fault="rate_limited", retry_after_seconds=3.0)
SILENT = Outcome(fault="silent")


class SlowLedger(MemoryLedger):
    async def settle(self, entry: Entry) -> None:
        await super().settle(entry)
        await asyncio.sleep(1.0)


class ClosesSlowly(ScriptedBackend):
    """A backend that takes two seconds to close a cancelled call."""

    async def open(self, call: Call) -> Reply:
        try:
            return await super().open(call)
        except asyncio.CancelledError:
            await asyncio.sleep(2.0)
            raise


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    leaves_at: float
    outcomes: tuple[Outcome, ...] = (ANSWER,)
    is_stream: bool = True
    model: str = "a"
    drained_tokens: int | None = 4
    """What a provider reports after draining; None if no answer had begun, so that there is nothing to drain."""


STAGES = [
    Stage("no answer yet", 0.5, drained_tokens=None),
    Stage("the upstream is silent", 3.0, (SILENT,), drained_tokens=None),
    Stage("waiting to try again", 1.5, (REFUSED, ANSWER), drained_tokens=None),
    Stage("trying another model", 1.5, (SILENT,), model="auto"),
    Stage("just after the first piece", 1.0),
    Stage("between pieces", 1.5),
    Stage("later between pieces", 3.5),
    Stage("as the last piece comes", 4.0),
    Stage("while the books are written", 4.5),
    Stage("while a whole answer is written", 2.0, is_stream=False, drained_tokens=None),
    Stage("while a whole answer is booked", 4.5, is_stream=False),
]


@pytest.mark.parametrize("drains", [False, True], ids=["cancel", "drain"])
@pytest.mark.parametrize("stage", STAGES, ids=[stage.name for stage in STAGES])
def test_leaving_at_any_stage(stage: Stage, drains: bool) -> None:
    async def go() -> None:
        rig = timed_rig(
            follow(stage.outcomes),
            follow([ANSWER]),
            drains=frozenset({"one", "two"}) if drains else frozenset(),
            retry_policy=RetryPolicy(first_token_seconds=0.2 if stage.model == "auto" else None),
        )
        rig.ledger = rig.pipeline.ledger = SlowLedger()
        began = now()
        await call(rig.pipeline, leaves_at=stage.leaves_at, model=stage.model, stream=stage.is_stream)
        entry = rig.entry
        is_booked_already = stage.leaves_at == 4.5
        assert entry.status is (Status.completed if is_booked_already else Status.cancelled)
        assert rig.observed.entries == [entry], "counted once"
        assert rig.one.open_replies == rig.two.open_replies == 0, "the upstream is released"
        assert set(rig.pipeline.upstreams.running.values()) <= {0}
        if drains and stage.drained_tokens is not None:
            assert (entry.output_tokens, entry.input_tokens) == (4, 12), "the provider's own count"
            assert entry.is_usage_estimated is any(one.outcome == "UpstreamTimeout" for one in entry.attempts)
            assert now() - began == pytest.approx(5.2 if stage.model == "auto" else 5.0)
        elif not is_booked_already:
            assert entry.is_usage_estimated, "the provider never told"
            assert entry.cost is not None
            assert entry.cost_lower_pico_usd is not None
            assert entry.cost_upper_pico_usd is not None
            assert entry.cost_lower_pico_usd <= entry.cost.total_pico_usd <= entry.cost_upper_pico_usd
            assert now() - began <= stage.leaves_at + 1.0, "nothing but the books kept us"

    run(go)


def thinking_rig(*outcomes: Outcome) -> Rig:
    """A rig with a budget of ten cents, at four dollars per million tokens."""
    limits = {"key-1": parse_limits({"budget_usd": "0.10"})}
    rig = timed_rig(follow(outcomes), admission=Admission(limits=limits, wait_seconds=0.0))
    thinker = make_candidate(
        "a", backend="one", prices=make_prices(1.0, 4.0), supports=frozenset({"streaming", "reasoning"})
    )
    rig.pipeline.snapshot = make_snapshot("version: 1\nrules: [{name: r, choose: {from: [a]}}]", [thinker])
    return rig


def test_who_always_leaves_before_the_first_word_has_a_budget_too() -> None:
    """Only its prompts were charged, although the thinking of the model until then was paid for."""

    async def go() -> None:
        rig = thinking_rig(SILENT)
        heard = [await call(rig.pipeline, stream=True, max_tokens=10_000, leaves_at=now() + 60.0) for _ in range(10)]
        assert [one.status for one in heard] == [None] * 3 + [429] * 7
        entries = rig.ledger.entries
        assert [entry.reasoning_tokens for entry in entries] == [6000] * 3, "at what is assumed, 100 a second"
        for entry in entries:
            assert entry.status is Status.cancelled
            assert entry.cost is not None
            assert entry.cost_lower_pico_usd is not None
            assert entry.cost_upper_pico_usd is not None
            assert entry.cost_lower_pico_usd < 10**7 < entry.cost.total_pico_usd <= entry.cost_upper_pico_usd

    run(go)


def test_what_was_thought_unseen_is_reckoned_at_the_models_own_speed() -> None:
    async def go() -> None:
        usage = Usage(input_tokens=12, output_tokens=800, reasoning_tokens=796)
        rig = thinking_rig(Outcome(first_piece_delay_seconds=40.0, usage=usage), SILENT)
        await call(rig.pipeline, stream=True, max_tokens=10_000)
        await call(rig.pipeline, stream=True, max_tokens=10_000, leaves_at=now() + 30.0)
        heard, left = rig.ledger.entries
        assert (heard.reasoning_tokens, left.reasoning_tokens) == (796, 600)
        assert (heard.is_usage_estimated, left.is_usage_estimated) == (False, True)

    run(go)


def test_leaving_before_the_body_is_complete_is_no_request_at_all() -> None:
    async def go() -> None:
        rig = timed_rig(follow([ANSWER]))
        heard = await call(rig.pipeline, leaves_at=1.0, sends_body=False)
        assert heard.status is None
        assert not rig.ledger.entries
        assert not rig.ledger.open
        assert not rig.one.calls

    run(go)


def test_leaving_during_a_race_closes_both_and_books_both() -> None:
    async def go() -> None:
        quick = Outcome(first_piece_delay_seconds=0.1)
        rig = timed_rig(follow([quick] * 20 + [SILENT]), follow([SILENT]), retry_policy=RetryPolicy(is_hedging=True))
        for _ in range(20):
            await call(rig.pipeline, stream=True)
        rig.ledger.entries.clear()
        await call(rig.pipeline, stream=True, leaves_at=now() + 1.0)
        assert rig.entry.status is Status.cancelled
        assert rig.entry.model == "b"
        assert [(one.model, one.outcome, one.cost_pico_usd) for one in rig.entry.attempts] == [
            ("a", "called_off", 6 * 1_000_000)
        ]
        assert rig.pipeline.upstreams.running == {"one": 0, "two": 0}

    run(go)


def test_leaving_while_the_loser_of_a_race_is_closed_leaves_no_call_running() -> None:
    async def go() -> None:
        quick = Outcome(first_piece_delay_seconds=0.1)
        rig = timed_rig(follow([quick] * 20), follow([quick]), retry_policy=RetryPolicy(is_hedging=True))
        for _ in range(20):
            await call(rig.pipeline, stream=True)
        rig.ledger.entries.clear()
        rig.one = ClosesSlowly("one", follow([SILENT]))
        rig.pipeline.backends = {"one": rig.one, "two": rig.two}
        await call(rig.pipeline, stream=True, leaves_at=now() + 1.0)
        assert rig.entry.status is Status.cancelled
        assert [(one.model, one.outcome) for one in rig.entry.attempts] == [("b", "answered"), ("a", "called_off")]
        assert rig.one.open_replies == rig.two.open_replies == 0
        assert rig.pipeline.upstreams.running == {"one": 0, "two": 0}

    run(go)


def test_a_probe_whose_caller_left_does_not_keep_the_breaker_open() -> None:
    async def go() -> None:
        failing = [Outcome(fault="unavailable")] * 5
        rig = timed_rig(follow([*failing, SILENT, ANSWER]), retry_policy=RetryPolicy(max_attempts=1))
        for _ in range(5):
            await call(rig.pipeline, model="a")
        assert (await call(rig.pipeline, model="a")).status == 503
        await asyncio.sleep(2)
        await call(rig.pipeline, model="a", leaves_at=now() + 0.5)
        heard = await call(rig.pipeline, model="a")
        assert heard.status == 200

    run(go)
