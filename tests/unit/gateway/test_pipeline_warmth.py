"""Engines that are still loading, and conversations with warm prompt caches."""

import asyncio
import json

import pytest

from backends.formats.openai_request import build_body
from backends.protocol import BackendHealth
from gateway.errors import (
    NoEligibleModel,
)
from gateway.request.run import Incoming
from gateway.routing.decide import decide
from gateway.routing.snapshot import request_facts_of
from gateway.upstreams.starting import Starting
from tests.builders import make_candidate, make_local, make_prices, make_snapshot
from tests.rig import KEY, RecordingCaller, Rig

LONG = [{"role": "system", "content": "s" * 40_000}, {"role": "user", "content": "hello"}]
NEXT = [*LONG, {"role": "assistant", "content": "Hello, world."}, {"role": "user", "content": "and?"}]


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


async def test_a_line_of_a_batch_does_not_wait_for_a_loading_engine() -> None:
    rig = Rig()
    rig.pipeline.upstreams.starting = Starting(["one"])
    body = json.dumps({"model": "a", "messages": [{"role": "user", "content": "hello"}]}).encode()
    line = Incoming("chat.completions", f"Bearer {KEY}", body, batch_id="batch_1")
    with pytest.raises(NoEligibleModel, match="still loading"):
        await asyncio.wait_for(rig.pipeline.answer(line, RecordingCaller()), 5.0)


async def test_whoever_can_answer_now_does_so_while_the_engine_loads() -> None:
    rig = Rig()
    rig.pipeline.upstreams.starting = Starting(["one"])
    assert (await rig.ask()).headers["x-breakeven-model"] == "b"


async def test_an_engine_that_loads_for_too_long_is_told_apart_from_one_that_is_down() -> None:
    rig = Rig(loading_seconds=0.0)
    rig.pipeline.upstreams.starting = Starting(["one"])
    with pytest.raises(NoEligibleModel, match=r"a: its engine is still loading\. Try again in a few seconds") as caught:
        await rig.ask(model="a")
    assert caught.value.retry_after_seconds == 5.0
    rig.pipeline.upstreams.note_health("one", BackendHealth(is_healthy=True))
    rig.pipeline.upstreams.note_health("one", BackendHealth(is_healthy=False))
    with pytest.raises(NoEligibleModel, match="a: its backend is down"):
        await rig.ask(model="a")


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
