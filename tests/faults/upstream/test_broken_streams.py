"""Answers that break after their first piece, trickle, pause, or change price on the way. In virtual time."""

import asyncio
import json

import pytest

from backends.scripted import Fault, Outcome, follow
from backends.usage import Usage
from gateway.ledger.entry import Status
from tests.builders import make_candidate, make_prices, make_snapshot
from tests.faults.upstream.service import call, timed_rig
from tests.virtual_time import now, run

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("kind", ["reset", "truncated", "stalled", "error_event", "garbage"])
@pytest.mark.parametrize("after", [1, 3])
def test_what_breaks_after_the_first_piece_ends_in_an_error_event_and_is_never_run_again(
    kind: Fault, after: int
) -> None:
    async def go() -> None:
        rig = timed_rig(follow([Outcome(fault=kind, fault_after_pieces=after)]), follow([Outcome()]))
        heard = await call(rig.pipeline, stream=True)
        assert heard.status == 200
        assert heard.is_complete
        assert b"[DONE]" not in heard.body
        last = json.loads(heard.body.rpartition(b"data: ")[2])
        assert last["error"]["code"] == "stream_broken"
        assert (len(rig.one.calls), len(rig.two.calls)) == (1, 0)
        assert rig.entry.status is Status.partial
        assert rig.entry.is_usage_estimated
        assert rig.entry.output_tokens >= 1
        assert rig.entry.cost is not None
        assert rig.entry.cost.total_pico_usd > 0
        assert rig.one.open_replies == 0

    run(go)


def test_a_stall_is_waited_for_as_long_as_the_idle_timeout_and_the_caller_hears_a_heartbeat_every_15_seconds() -> None:
    async def go() -> None:
        rig = timed_rig(follow([Outcome(fault="stalled", fault_after_pieces=1)]))
        heard = await call(rig.pipeline, model="a", stream=True)
        assert now() == pytest.approx(120)
        assert heard.comments == pytest.approx([15, 30, 45, 60, 75, 90, 105])
        assert rig.entry.error == "StreamStalled"

    run(go)


def test_a_slow_drip_is_no_fault_and_gets_heartbeats_only_where_it_is_slower_than_they_are() -> None:
    async def go() -> None:
        rig = timed_rig(follow([Outcome(piece_delay_seconds=40.0)]))
        heard = await call(rig.pipeline, model="a", stream=True)
        assert heard.body.endswith(b"data: [DONE]\n\n")
        assert heard.comments == pytest.approx([15, 30, 55, 70, 95, 110])
        assert rig.entry.status is Status.completed

        quicker = timed_rig(follow([Outcome(piece_delay_seconds=14.0)]))
        assert not (await call(quicker.pipeline, model="a", stream=True)).comments

    run(go)


@pytest.mark.parametrize("then", [None, 100.0])
def test_a_price_that_changes_or_goes_while_an_answer_streams_is_the_next_requests_price(then: float | None) -> None:
    async def go() -> None:
        rig = timed_rig(follow([Outcome(piece_delay_seconds=1.0)]))

        async def change() -> None:
            await asyncio.sleep(1.5)
            prices = None if then is None else make_prices(then, then)
            rig.pipeline.snapshot = make_snapshot(candidates=[make_candidate("a", backend="one", prices=prices)])

        await asyncio.gather(call(rig.pipeline, model="a", stream=True), change())
        assert rig.entry.cost is not None
        assert rig.entry.cost.total_pico_usd == 12 * 1_000_000 + 4 * 4_000_000
        await call(rig.pipeline, model="a", stream=True)
        cost = rig.ledger.entries[1].cost
        assert (cost.total_pico_usd if cost else None) == (None if then is None else 16 * 100_000_000)

    run(go)


def test_a_usage_that_names_an_unknown_service_tier_is_unpriced_and_never_free() -> None:
    async def go() -> None:
        usage = Usage(input_tokens=12, output_tokens=4, service_tier="platinum")
        rig = timed_rig(follow([Outcome(usage=usage)]))
        await call(rig.pipeline, model="a")
        assert rig.entry.cost is None

    run(go)


@pytest.mark.parametrize("step_seconds", [-3600.0, 0.0, 1e9])
def test_a_clock_that_jumps_or_stands_still_makes_no_duration_negative(step_seconds: float) -> None:
    async def go() -> None:
        rig = timed_rig(follow([Outcome(fault="unavailable"), Outcome(piece_delay_seconds=1.0)]))
        told = [0.0]

        def clock() -> float:
            told[0] += step_seconds
            return told[0]

        rig.pipeline.monotonic = clock
        rig.pipeline.now_us = lambda: int(clock() * 1e6) + 10**15
        heard = await call(rig.pipeline, model="a", stream=True)
        assert heard.is_complete
        entry = rig.entry
        assert entry.total_seconds >= 0
        assert (entry.time_to_first_token_seconds or 0.0) >= 0
        assert entry.decode_tokens_per_second is None or entry.decode_tokens_per_second > 0
        assert all(one.started_after_seconds >= 0 and one.lasted_seconds >= 0 for one in entry.attempts)

    run(go)
