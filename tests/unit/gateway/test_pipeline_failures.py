"""The request path when a backend fails, our own code fails or the caller leaves: reported, and booked once."""

import asyncio
import contextlib
import gc
import json

import pytest

from backends.errors import RateLimited, Untranslatable
from backends.http.reply import PlainReply
from backends.protocol import Call, Chunk, Reply
from backends.scripted import Fault, Outcome, Script, ScriptedBackend, follow
from gateway.errors import LedgerUnavailable, UpstreamFailed
from gateway.ledger.entry import Entry, Status
from gateway.request.dispatch import MOST_BEFORE_OUTPUT_BYTES
from gateway.request.run import Run
from gateway.routing.fallback import RetryPolicy
from tests.memory_ledger import MemoryLedger
from tests.rig import FixedClassifier, RecordingCaller, Rig


def fault(kind: Fault, after: int = 0) -> Script:
    return follow([Outcome(fault=kind, fault_after_pieces=after)])


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


@pytest.mark.parametrize("two", [fault("unreachable"), fault("garbage"), None], ids=["refused", "garbage", "answered"])
async def test_a_request_with_a_failed_attempt_is_freed_without_a_search_for_cycles(two: Script | None) -> None:
    rig = Rig(one=fault("unavailable"), two=two)
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(UpstreamFailed):
            await rig.ask()
        left = sum(type(one) is Run for one in gc.get_objects())
    finally:
        gc.enable()
    assert left == 0


async def test_an_answer_that_says_nothing_without_end_falls_back() -> None:
    rig, nothing = Rig(), Chunk(bytes(MOST_BEFORE_OUTPUT_BYTES // 2))

    class Silent(PlainReply):
        async def __anext__(self) -> Chunk:
            return nothing

    class Pinging(ScriptedBackend):
        async def open(self, call: Call) -> Reply:
            del call
            return Silent(nothing)

    rig.pipeline.backends = {"one": Pinging("one", follow([Outcome()])), "two": rig.two}
    await rig.ask(stream=True)
    assert [attempt.outcome for attempt in rig.entry.attempts] == ["UnreadableAnswer", "answered"]


async def test_when_nobody_answers_the_caller_hears_why_and_the_failure_is_booked() -> None:
    rig = Rig(one=fault("unavailable"), two=fault("unreachable"))
    with pytest.raises(UpstreamFailed, match=r"a \(UpstreamUnavailable\); b \(ConnectFailed\)") as caught:
        await rig.ask(stream=True)
    assert caught.value.status == 502
    assert (rig.entry.status, rig.entry.http_status) == (Status.failed, 502)
    assert rig.entry.cost is not None
    assert rig.entry.cost.total_pico_usd == 0
    assert rig.observed.failed[:2] == ["a:UpstreamUnavailable", "b:ConnectFailed"]


@pytest.mark.parametrize("is_first", [True, False])
async def test_who_could_be_served_later_is_not_told_what_another_model_cannot_do(is_first: bool) -> None:
    """Clients repeat a 503 after its wait, and give up at a 400."""
    unable, full = Untranslatable("n is at most 16 here", status=400), RateLimited("full", retry_after_seconds=60.0)

    class Failing(ScriptedBackend):
        async def open(self, call: Call) -> Reply:
            raise unable if (self.name == "one") is is_first else full

    rig = Rig()
    rig.pipeline.backends = {name: Failing(name, follow([Outcome()])) for name in ("one", "two")}
    with pytest.raises(UpstreamFailed) as caught:
        await rig.ask()
    assert (caught.value.status, caught.value.retry_after_seconds) == (429, 60.0)
    assert (rig.entry.error, len(rig.entry.attempts)) == ("RateLimited", 2)


async def test_a_time_out_may_have_been_billed_and_says_so_with_bounds() -> None:
    rig = Rig(one=fault("silent"), two=fault("silent"))
    with pytest.raises(UpstreamFailed):
        await rig.ask(max_tokens=100)
    assert rig.entry.is_usage_estimated
    assert rig.entry.cost_upper_pico_usd is not None
    assert rig.entry.cost_upper_pico_usd > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_an_empty_answer_without_usage_costs_its_prompt(stream: bool) -> None:
    rig = Rig(one=follow([Outcome(pieces=(), usage=None)]))
    await rig.ask(stream=stream, max_tokens=100)
    entry = rig.entry
    assert (entry.status, entry.is_usage_estimated, entry.output_tokens) == (Status.completed, True, 0)
    assert entry.cost is not None
    assert entry.cost.total_pico_usd == entry.input_tokens * 1_000_000 > 0


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


async def test_a_broken_classifier_means_unknown_and_never_an_error() -> None:
    rig = Rig(classifier=FixedClassifier(fails=True))
    caller = await rig.ask()
    assert caller.headers["x-breakeven-difficulty"] == "unknown"
    assert rig.entry.intent.decision.facts.difficulty is None
    assert rig.observed.unclassified_count == 1


async def test_a_cut_stream_cancels_nothing_else() -> None:
    rig = Rig(one=follow([Outcome(fault="reset", fault_after_pieces=1), Outcome()]))
    results = await asyncio.gather(rig.ask(stream=True), rig.ask(stream=True))
    assert sorted(b"[DONE]" in caller.body for caller in results) == [False, True]
    assert sorted(entry.status.value for entry in rig.ledger.entries) == ["completed", "partial"]


@pytest.mark.parametrize(("choices", "status", "tokens"), [(1, Status.completed, (12, 4)), (2, Status.cancelled, None)])
async def test_who_leaves_at_the_answers_end_is_booked_with_the_usage_behind_it(
    choices: int, status: Status, tokens: tuple[int, int] | None
) -> None:
    """Many clients stop reading at `finish_reason`. With several choices, another may still be in progress."""
    everything = await Rig().ask(stream=True, n=choices)
    last = next(place for place, sent in enumerate(everything.sent) if b'"finish_reason":"stop"' in sent)
    rig = Rig()
    caller = RecordingCaller(leaves_after=last + 1)
    with contextlib.suppress(asyncio.CancelledError):
        await rig.ask(caller, stream=True, n=choices)
    assert len(caller.sent) == last + 1
    entry = rig.entry
    assert (entry.status, entry.finish_reason) == (status, "stop")
    assert entry.is_usage_estimated is (tokens is None)
    assert tokens is None or (entry.input_tokens, entry.output_tokens) == tokens
    assert rig.one.open_replies == 0


async def test_a_provider_that_bills_the_whole_answer_is_read_to_its_end() -> None:
    rig = Rig(drains=frozenset({"one"}))
    caller = await rig.ask(RecordingCaller(leaves_after=1), stream=True)
    assert len(caller.sent) == 1
    assert rig.entry.status is Status.cancelled
    assert not rig.entry.is_usage_estimated
    assert rig.entry.output_tokens == 4


async def test_a_stream_that_cannot_be_settled_ends_in_an_error_event_and_raises_nothing() -> None:
    """A failed sync ends all streams: if raised, each would leave a traceback in the log."""

    class Stopped(MemoryLedger):
        async def settle(self, entry: Entry) -> None:
            raise LedgerUnavailable("The journal stopped.")

    rig = Rig()
    rig.pipeline.ledger = Stopped()
    caller = await rig.ask(stream=True)
    assert caller.is_complete
    assert b"[DONE]" not in caller.body
    assert json.loads(caller.sent[-1].removeprefix(b"data: "))["error"]["code"] == "stream_broken"
    assert b"The journal stopped." in caller.sent[-1]
