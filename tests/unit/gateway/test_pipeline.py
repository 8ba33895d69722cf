"""The three invariants of the request path, driven by scripted backends and an in-memory ledger."""

import asyncio
import itertools
import json
from dataclasses import replace

import pytest

from backends.openai_request import build_body
from backends.protocol import BackendHealth
from backends.scripted import Fault, Outcome, Script, ScriptedBackend, follow
from backends.usage import Usage
from gateway.errors import (
    Forbidden,
    InvalidRequest,
    ModelNotFound,
    NoEligibleModel,
    Unauthenticated,
    UpstreamFailed,
)
from gateway.ledger.entry import Status
from gateway.pipeline import Incoming
from gateway.routing.decide import decide
from gateway.routing.fallback import RetryPolicy
from gateway.routing.snapshot import Snapshot, request_facts_of
from gateway.upstreams.starting import Starting
from tests.builders import make_candidate, make_local, make_prices, make_snapshot
from tests.rig import KEY, A, B, FixedClassifier, RecordingCaller, Rig


def fault(kind: Fault, after: int = 0) -> Script:
    return follow([Outcome(fault=kind, fault_after_pieces=after)])


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_is_passed_on_and_booked_exactly(stream: bool) -> None:
    rig = Rig()
    caller = await rig.ask(stream=stream)
    entry = rig.entry
    assert caller.is_complete
    assert entry.status is Status.completed
    assert (entry.input_tokens, entry.output_tokens) == (12, 4)
    assert entry.cost is not None
    assert entry.cost.total_pico_usd == 12 * 1_000_000 + 4 * 4_000_000
    assert (entry.cost_lower_pico_usd, entry.cost_upper_pico_usd) == (28_000_000, 28_000_000)
    assert entry.intent.team == "red"
    assert entry.intent.tags == ("base", "extra")
    assert caller.headers["x-breakeven-model"] == "a"
    assert caller.headers["x-breakeven-difficulty"] == "0.2500"
    if stream:
        assert caller.sent[-1] == b"data: [DONE]\n\n"
        events = [json.loads(event.removeprefix(b"data: ")) for event in caller.sent[:-1]]
        assert "".join(event["choices"][0]["delta"].get("content", "") for event in events) == "Hello, world."
        assert entry.time_to_first_token_seconds is not None
    else:
        assert caller.headers["x-breakeven-cost-usd"] == "0.000028"
        assert json.loads(caller.body)["choices"][0]["message"]["content"] == "Hello, world."
        assert entry.time_to_first_token_seconds is None, "a whole answer has no first token to time"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "kind",
    [
        "rate_limited",
        "unavailable",
        "overloaded",
        "auth",
        "unreachable",
        "silent",
        "reset",
        "stalled",
        "truncated",
        "garbage",
        "error_event",
    ],
)
async def test_before_the_first_chunk_any_failure_falls_back(kind: Fault, stream: bool) -> None:
    rig = Rig(one=fault(kind))
    caller = await rig.ask(stream=stream)
    entry = rig.entry
    assert caller.is_complete
    assert (entry.status, entry.model, entry.intent.decision.model) == (Status.completed, "b", "a")
    assert [attempt.model for attempt in entry.attempts] == ["a", "b"]
    assert entry.attempts[0].outcome != "answered"
    assert entry.attempts[1].outcome == "answered"
    assert caller.headers["x-breakeven-model"] == "b"
    assert entry.cost is not None
    answer = 12 * 10_000_000 + 4 * 40_000_000
    # It may have read the prompt, about 6 tokens.
    maybe_billed = 6 * 1_000_000 if kind in ("silent", "stalled", "reset", "truncated", "garbage") else 0
    assert entry.cost.total_pico_usd == answer + maybe_billed
    assert entry.attempts[0].cost_pico_usd == maybe_billed
    assert entry.is_usage_estimated is bool(maybe_billed)
    assert entry.cost_lower_pico_usd == answer


@pytest.mark.parametrize("kind", ["reset", "truncated", "stalled", "error_event", "garbage"])
async def test_after_the_first_chunk_a_failure_is_an_error_event_and_never_a_clean_end(kind: Fault) -> None:
    rig = Rig(one=fault(kind, after=2))
    caller = await rig.ask(stream=True)
    entry = rig.entry
    assert entry.status is Status.partial
    assert entry.model == "a"
    assert not rig.two.calls, "never silently run again elsewhere"
    assert b"[DONE]" not in caller.body
    assert json.loads(caller.sent[-1].removeprefix(b"data: "))["error"]["code"] == "stream_broken"
    assert entry.is_usage_estimated
    assert entry.output_tokens > 0
    assert entry.cost is not None
    assert entry.cost_lower_pico_usd is not None
    assert entry.cost_upper_pico_usd is not None
    assert entry.cost_lower_pico_usd <= entry.cost.total_pico_usd <= entry.cost_upper_pico_usd


async def test_when_nobody_answers_the_caller_hears_why_and_the_failure_is_booked() -> None:
    rig = Rig(one=fault("unavailable"), two=fault("unreachable"))
    with pytest.raises(UpstreamFailed, match=r"a \(UpstreamUnavailable\); b \(ConnectFailed\)") as caught:
        await rig.ask(stream=True)
    assert caught.value.status == 502
    assert (rig.entry.status, rig.entry.http_status) == (Status.failed, 502)
    assert rig.entry.cost is not None
    assert rig.entry.cost.total_pico_usd == 0
    assert rig.observed.failed[:2] == ["a:UpstreamUnavailable", "b:ConnectFailed"]


async def test_a_time_out_may_have_been_billed_and_says_so_with_bounds() -> None:
    rig = Rig(one=fault("silent"), two=fault("silent"))
    with pytest.raises(UpstreamFailed):
        await rig.ask(max_tokens=100)
    assert rig.entry.is_usage_estimated
    assert rig.entry.cost_upper_pico_usd is not None
    assert rig.entry.cost_upper_pico_usd > 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["truncated", "garbage", "reset"])
async def test_answers_that_cannot_be_read_are_never_booked_as_free(kind: Fault, stream: bool) -> None:
    rig = Rig(one=fault(kind), two=fault(kind), retry_policy=RetryPolicy(max_attempts=2))
    with pytest.raises(UpstreamFailed):
        await rig.ask(stream=stream, max_tokens=100)
    entry = rig.entry
    assert (entry.status, entry.error) == (Status.failed, "UnreadableAnswer")
    assert entry.is_usage_estimated
    assert entry.cost is not None
    assert entry.cost.other_pico_usd == entry.cost.total_pico_usd == 6 * 1_000_000 + 6 * 10_000_000
    assert entry.cost_lower_pico_usd == 0, "nor is it sure that a bill will come"
    assert entry.cost_upper_pico_usd is not None
    assert entry.cost_upper_pico_usd > entry.cost.total_pico_usd
    assert [one.paid_to.upstream_model for one in entry.attempts if one.paid_to] == ["upstream-a", "upstream-b"]


async def test_what_a_provider_calls_its_own_failure_is_not_charged() -> None:
    rig = Rig(one=fault("error_event"), two=fault("error_event"))
    with pytest.raises(UpstreamFailed):
        await rig.ask()
    assert (rig.entry.cost_lower_pico_usd, rig.entry.cost_upper_pico_usd) == (0, 0)


async def test_the_callers_own_mistake_is_not_retried() -> None:
    rig = Rig(one=fault("rejected"))
    with pytest.raises(UpstreamFailed) as caught:
        await rig.ask()
    assert (caught.value.status, caught.value.type) == (400, "invalid_request_error")
    assert not rig.two.calls
    assert rig.entry.status is Status.failed


@pytest.mark.parametrize("leaves_after", [1, 2, 3])
async def test_a_caller_that_leaves_is_settled_once_and_the_upstream_released(leaves_after: int) -> None:
    rig = Rig()
    with pytest.raises(asyncio.CancelledError):
        await rig.ask(RecordingCaller(leaves_after), stream=True)
    assert rig.entry.status is Status.cancelled
    assert rig.entry.is_usage_estimated
    assert rig.one.open_replies == 0
    assert rig.pipeline.upstreams.running == {"one": 0}


async def test_a_caller_that_leaves_before_any_answer_is_settled_too() -> None:
    started = asyncio.Event()

    async def never(seconds: float) -> None:
        started.set()
        await asyncio.Event().wait()

    rig = Rig()
    rig.pipeline.backends = {"one": ScriptedBackend("one", follow([Outcome()]), sleep=never), "two": rig.two}
    task = asyncio.create_task(rig.ask(stream=True))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rig.entry.status is Status.cancelled
    assert rig.pipeline.upstreams.running == {"one": 0}


async def test_a_decision_replays_from_its_entry() -> None:
    rig = Rig(one=fault("unavailable"))
    await rig.ask(max_tokens=50)
    again = decide(request_facts_of(rig.entry.intent), rig.pipeline.snapshot)
    assert again.decision == rig.entry.intent.decision


async def test_a_broken_classifier_means_unknown_and_never_an_error() -> None:
    rig = Rig(classifier=FixedClassifier(fails=True))
    caller = await rig.ask()
    assert caller.headers["x-breakeven-difficulty"] == "unknown"
    assert rig.entry.intent.decision.facts.difficulty is None
    assert rig.observed.unclassified_count == 1


async def test_unknown_prices_are_null_and_never_zero() -> None:
    rig = Rig()
    rig.pipeline.snapshot = make_snapshot(candidates=[make_candidate("a", backend="one", prices=None)])
    caller = await rig.ask()
    assert rig.entry.cost is None
    assert "x-breakeven-cost-usd" not in caller.headers


async def test_a_request_is_priced_by_its_own_time_and_not_by_a_timer() -> None:
    """A microsecond before the new price, at it, and after: one decision, one accepted_at, one price each."""
    change_us = 1_800_000_000_000_000
    times = [change_us - 1, change_us, change_us + 1]
    dearer = make_snapshot(candidates=[replace(A, prices=make_prices(2.0, 8.0)), B])
    asked: list[int] = []

    def snapshot_at(at_us: int) -> Snapshot:
        asked.append(at_us)
        return dearer

    rig = Rig(snapshot_at=snapshot_at)
    rig.pipeline.snapshot = replace(rig.pipeline.snapshot, prices_until_us=change_us)
    for now_us in times:
        rig.pipeline.now_us = lambda now_us=now_us: now_us
        await rig.ask()
    assert [entry.intent.accepted_at_us for entry in rig.ledger.entries] == times
    old = 12 * 1_000_000 + 4 * 4_000_000
    assert [entry.cost.total_pico_usd for entry in rig.ledger.entries if entry.cost] == [old, 2 * old, 2 * old]
    assert asked == [change_us], "once, by the first who needs it"


async def test_prices_that_a_clock_put_forward_brought_in_force_go_when_it_is_put_back() -> None:
    change_us = 1_800_000_000_000_000
    cheap = replace(make_snapshot(candidates=[A, B]), prices_until_us=change_us)
    dear = make_snapshot(candidates=[replace(A, prices=make_prices(2.0, 8.0)), B])

    def snapshot_at(at_us: int) -> Snapshot:
        return replace(dear if at_us >= change_us else cheap, prices_at_us=at_us)

    rig = Rig(snapshot_at=snapshot_at)
    rig.pipeline.snapshot = cheap
    for now_us in (change_us - 1, change_us + 1, change_us - 1, change_us):
        rig.pipeline.now_us = lambda now_us=now_us: now_us
        await rig.ask()
    old = 12 * 1_000_000 + 4 * 4_000_000
    assert [entry.cost.total_pico_usd for entry in rig.ledger.entries if entry.cost] == [old, 2 * old, old, 2 * old]


async def test_the_decision_and_the_books_have_one_time() -> None:
    """Time goes on while a request is decided: a price that changes meanwhile is the next request's."""

    def snapshot_at(at_us: int) -> Snapshot:
        raise AssertionError(f"this request was accepted before {at_us}")

    ticks = itertools.count()  # 0 authenticates, 1 accepts; whoever looks again is too late
    rig = Rig(now_us=lambda: next(ticks), snapshot_at=snapshot_at)
    rig.pipeline.snapshot = replace(rig.pipeline.snapshot, prices_until_us=2)
    await rig.ask()
    assert rig.entry.intent.accepted_at_us == 1


async def test_missing_usage_is_estimated_and_flagged() -> None:
    rig = Rig(one=follow([Outcome(usage=None)]))
    await rig.ask(stream=True)
    assert rig.entry.is_usage_estimated
    assert rig.entry.output_tokens == round(len("Hello, world.") / 4)


async def test_long_streams_leave_checkpoints() -> None:
    rig = Rig(one=follow([Outcome(pieces=("x" * 400,) * 10)]))
    await rig.ask(stream=True)
    tokens = [checkpoint.output_tokens for checkpoint in rig.ledger.checkpoints]
    assert tokens == [300, 600, 900]
    assert all(checkpoint.cost_so_far_pico_usd for checkpoint in rig.ledger.checkpoints)


async def test_a_cut_stream_cancels_nothing_else() -> None:
    rig = Rig(one=follow([Outcome(fault="reset", fault_after_pieces=1), Outcome()]))
    results = await asyncio.gather(rig.ask(stream=True), rig.ask(stream=True))
    assert sorted(b"[DONE]" in caller.body for caller in results) == [False, True]
    assert sorted(entry.status.value for entry in rig.ledger.entries) == ["completed", "partial"]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", InvalidRequest),
        (b"[]", InvalidRequest),
        (b"{}", InvalidRequest),
        (b'{"model": "auto"}', InvalidRequest),
        (b'{"model": "auto", "messages": []}', InvalidRequest),
        (b'{"model": "auto", "messages": [{"role": "user", "content": 5}]}', InvalidRequest),
        (b'{"model": "auto", "messages": [{"role": "user"}], "max_tokens": -1}', InvalidRequest),
        (b'{"model": "auto", "messages": [{"role": "user"}], "max_tokens": 1000000000000}', InvalidRequest),
        (b'{"model": "auto", "messages": [{"role": "user"}], "n": 0}', InvalidRequest),
        (b'{"model": "gone", "messages": [{"role": "user", "content": "x"}]}', ModelNotFound),
        (b'{"model": "auto", "messages": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", InvalidRequest),
        (b'{"model": "auto", "x": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b', "messages": []}', InvalidRequest),
    ],
)
async def test_a_bad_body_is_refused_before_anything_is_booked(body: bytes, error: type[Exception]) -> None:
    rig = Rig()
    with pytest.raises(error):
        await rig.pipeline.answer(Incoming("chat.completions", KEY, body), RecordingCaller())
    assert not rig.ledger.entries
    assert not rig.ledger.open


async def test_who_may_not_ask_is_refused() -> None:
    rig = Rig()
    body = b'{"model": "auto", "messages": [{"role": "user", "content": "x"}]}'
    for credential, error in ((None, Unauthenticated), ("Bearer nope", Unauthenticated), ("bk-viewer", Forbidden)):
        with pytest.raises(error):
            await rig.pipeline.answer(Incoming("chat.completions", credential, body), RecordingCaller())
    assert not rig.ledger.entries


async def test_usage_that_contradicts_itself_is_flagged_not_clamped() -> None:
    rig = Rig(one=follow([Outcome(usage=Usage(input_tokens=5, cached_input_tokens=9, output_tokens=1))]))
    await rig.ask()
    assert rig.entry.is_usage_estimated
    assert rig.entry.cost is None
    assert rig.entry.cached_input_tokens == 9


async def test_a_provider_that_bills_the_whole_answer_is_read_to_its_end() -> None:
    rig = Rig(drains=frozenset({"one"}))
    caller = await rig.ask(RecordingCaller(leaves_after=1), stream=True)
    assert len(caller.sent) == 1
    assert rig.entry.status is Status.cancelled
    assert not rig.entry.is_usage_estimated
    assert rig.entry.output_tokens == 4


async def test_a_request_waits_for_an_engine_that_is_still_loading() -> None:
    rig = Rig()
    rig.pipeline.upstreams.starting = Starting(["one"])
    asked = asyncio.create_task(rig.ask(model="a"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not asked.done()
    assert not rig.ledger.open, "nothing is booked while it waits"
    rig.pipeline.upstreams.note_health("one", BackendHealth(is_healthy=False))
    rig.pipeline.upstreams.note_health("one", BackendHealth(is_healthy=True))
    assert (await asked).is_complete
    assert rig.entry.model == "a"


async def test_whoever_can_answer_now_does_so_while_the_engine_loads() -> None:
    rig = Rig()
    rig.pipeline.upstreams.starting = Starting(["one"])
    assert (await rig.ask()).headers["x-breakeven-model"] == "b"


async def test_an_engine_that_loads_for_too_long_is_told_apart_from_one_that_is_down() -> None:
    rig = Rig(loading_seconds=0.0)
    rig.pipeline.upstreams.starting = Starting(["one"])
    with pytest.raises(NoEligibleModel, match=r"a: its engine is still loading\. Ask again in a few seconds") as caught:
        await rig.ask(model="a")
    assert caught.value.retry_after_seconds == 5.0
    rig.pipeline.upstreams.note_health("one", BackendHealth(is_healthy=True))
    rig.pipeline.upstreams.note_health("one", BackendHealth(is_healthy=False))
    with pytest.raises(NoEligibleModel, match="a: its backend is down"):
        await rig.ask(model="a")


LONG = [{"role": "system", "content": "s" * 40_000}, {"role": "user", "content": "hello"}]
NEXT = [*LONG, {"role": "assistant", "content": "Hello, world."}, {"role": "user", "content": "and?"}]


def cached_rig(cheaper_by: float) -> Rig:
    """Model a was asked first; then b costs only this share of a's price, uncached. a's cached price is a tenth."""
    rig = Rig(classifier=None)
    dear = make_prices(10.0, 10.0, cached_input=1_000_000)
    rig.pipeline.snapshot = make_snapshot(
        candidates=[
            make_candidate("a", backend="one", prices=dear),
            make_candidate("b", backend="two", prices=make_prices(10.0 * cheaper_by, 10.0 * cheaper_by)),
        ]
    )
    return rig


@pytest.mark.parametrize(("cheaper_by", "stays"), [(0.5, True), (0.05, False)])
async def test_a_conversation_stays_where_it_is_warm_while_that_is_worth_more_than_the_switch(
    cheaper_by: float, stays: bool
) -> None:
    rig = cached_rig(cheaper_by)
    await rig.ask(model="a", messages=LONG)
    await rig.ask(messages=NEXT)
    second = rig.ledger.entries[1]
    assert second.intent.decision.facts.warm_tokens == {"a": 9984}
    assert second.model == ("a" if stays else "b")
    assert decide(request_facts_of(second.intent), rig.pipeline.snapshot).decision == second.intent.decision
    cold = cached_rig(cheaper_by)
    await cold.ask(messages=NEXT)
    assert cold.entry.model == "b", "without a warm prefix the cheaper one"


async def test_the_cache_salt_is_the_tenants_and_never_the_callers() -> None:
    rig = Rig()
    rig.pipeline.snapshot = make_snapshot(candidates=[make_local("a", backend="one")])
    await rig.ask(cache_salt="of another tenant")
    [call] = rig.one.calls
    assert call.cache_salt == rig.pipeline.keys.cache_salt("team red")
    assert call.cache_salt != rig.pipeline.keys.cache_salt("key red")
    sent = json.loads(build_body(call))
    assert sent["cache_salt"] == call.cache_salt
