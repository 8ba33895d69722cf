"""Limits of models and tiers on the whole path: no prompt can get more of a tier than its quota."""

import asyncio
import json
from typing import Any

import pytest

from backends.scripted import Outcome, Script, follow
from gateway.errors import Forbidden, ModelLimited, UpstreamFailed
from gateway.limits.admission import Admission
from gateway.limits.values import Rates, SharedLimits, parse_limits
from gateway.request.cost_bounds import OUTPUT_BOUND_TOKENS
from gateway.routing.decide import decide
from gateway.routing.snapshot import request_facts_of
from tests.builders import make_snapshot
from tests.rig import A, B, Rig

BEST_FIRST = """
version: 1
rules:
  - name: best
    choose: {from: any, by: quality}
"""
TIERS = SharedLimits(tiers={"premium": frozenset({"b"})})


def rig_with(admission: Admission, one: Script | None = None) -> Rig:
    """Its rules send everything to b, the more expensive model."""
    rig = Rig(one=one, admission=admission)
    rig.pipeline.snapshot = make_snapshot(BEST_FIRST, [A, B])
    return rig


def with_quota(requests: int) -> Admission:
    quota = {"premium": {"requests": requests, "window": "day"}}
    return Admission(limits={"key-1": parse_limits({"tier_quotas": quota})}, shared=TIERS, wait_seconds=0.0)


async def test_what_no_quota_can_count_is_refused_to_a_key_that_has_one() -> None:
    """A request for the cheap model that fell back to the other at its provider counted for no quota."""
    rig = rig_with(with_quota(5))
    with pytest.raises(Forbidden, match="names others"):
        await rig.ask(model="a", fallbacks=["b"])
    rig.pipeline.admission.limits = {}
    await rig.ask(model="a", fallbacks=["b"])


async def test_a_routed_request_goes_elsewhere_once_the_quota_is_used_up() -> None:
    rig = rig_with(with_quota(2))
    for _ in range(5):
        await rig.ask()
    assert [entry.model for entry in rig.ledger.entries] == ["b", "b", "a", "a", "a"]


async def test_such_a_decision_can_be_replayed() -> None:
    rig = rig_with(with_quota(0))
    await rig.ask()
    again = decide(request_facts_of(rig.entry.intent), rig.pipeline.snapshot)
    assert again.decision.model == rig.entry.model == "a"


async def test_asking_for_the_model_by_name_is_refused_and_not_booked() -> None:
    rig = rig_with(with_quota(1))
    await rig.ask(model="b")
    with pytest.raises(ModelLimited, match="1 requests per day answered by models of the tier 'premium'"):
        await rig.ask(model="b")
    assert len(rig.ledger.entries) == 1
    assert not rig.ledger.open


async def test_failing_models_do_not_lead_into_the_tier() -> None:
    rig = Rig(one=follow([Outcome(fault="unavailable")]), admission=with_quota(5))
    with pytest.raises(UpstreamFailed):
        await rig.ask()
    assert not rig.two.calls


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_model_with_as_many_under_way_as_it_may_leaves_the_request_to_another(is_stream: bool) -> None:
    go = asyncio.Event()
    rig = rig_with(Admission(shared=SharedLimits(models={"b": Rates(max_parallel_requests=1)})))

    async def pause(seconds: float) -> None:
        await go.wait()

    rig.two._sleep = pause  # pyright: ignore[reportPrivateUsage]
    first = asyncio.create_task(rig.ask(stream=is_stream))
    while not rig.two.calls:
        await asyncio.sleep(0)
    assert (await rig.ask()).headers["x-breakeven-model"] == "a"
    with pytest.raises(ModelLimited, match="The model 'b' already has 1 request under way"):
        await rig.ask(model="b")
    assert len(rig.ledger.entries) == 1, "what was refused is in no books"
    go.set()
    assert (await first).headers["x-breakeven-model"] == "b"
    assert (await rig.ask()).headers["x-breakeven-model"] == "b", "its place is free again"


@pytest.mark.parametrize("rates", [Rates(1, None, 1), Rates(None, 1, 1)])
async def test_a_request_that_finds_the_rate_used_up_keeps_no_place(rates: Rates) -> None:
    rig = rig_with(Admission(shared=SharedLimits(models={"b": rates})))
    models = [(await rig.ask()).headers["x-breakeven-model"] for _ in range(3)]
    assert models == ["b", "a", "a"]
    rig.pipeline.admission.shared = SharedLimits(models={"b": Rates(max_parallel_requests=1)})
    assert (await rig.ask()).headers["x-breakeven-model"] == "b"


async def test_a_request_that_no_other_model_may_serve_is_told_of_the_limit() -> None:
    rig = rig_with(with_quota(0))
    rig.pipeline.snapshot = make_snapshot(BEST_FIRST, [B])
    with pytest.raises(ModelLimited):
        await rig.ask()


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        ({}, OUTPUT_BOUND_TOKENS),
        ({"max_tokens": None}, OUTPUT_BOUND_TOKENS),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 7}, None),
        ({"stream": True}, None),
    ],
)
async def test_a_whole_answer_on_a_budget_is_no_longer_than_what_is_held_for_it(
    body: dict[str, Any], sent: int | None
) -> None:
    rig = Rig(admission=Admission(limits={"key-1": parse_limits({"budget_usd": "1"})}))
    await rig.ask(**body)
    assert json.loads(rig.one.calls[0].body).get("max_tokens") == sent


async def test_without_a_budget_the_callers_bytes_are_forwarded_as_they_are() -> None:
    rig = Rig()
    await rig.ask()
    assert "max_tokens" not in json.loads(rig.one.calls[0].body)


async def test_a_model_at_its_own_rate_is_left_out() -> None:
    shared = SharedLimits(models={"b": Rates(requests_per_minute=1)})
    rig = rig_with(Admission(shared=shared))
    for _ in range(3):
        await rig.ask()
    assert [entry.model for entry in rig.ledger.entries] == ["b", "a", "a"]
