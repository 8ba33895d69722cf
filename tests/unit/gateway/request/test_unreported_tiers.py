"""A tier that a provider bills and does not name in its answers counts as had if it was asked for. So does one of an
answer that broke off before its usage."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from backends.protocol import Operation
from backends.scripted import Outcome, follow
from backends.usage import Usage
from gateway.config.price_files import load_price_book
from gateway.pipeline import Incoming
from gateway.pricing.catalogue import Ladder, ModelPrices, Rates, Service
from tests.builders import make_candidate, make_snapshot
from tests.rig import KEY, RecordingCaller, Rig
from tests.unit.gateway.pricing.builders import at

MODEL = "accounts/fireworks/models/kimi-k3"
STANDARD, PRIORITY = 100_000 * 3_000_000 + 100 * 15_000_000, 100_000 * 3_750_000 + 100 * 18_750_000


@pytest.mark.parametrize("operation", ["chat.completions", "messages"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("asked", "named", "provider", "tier", "pico_usd"),
    [
        ("priority", None, "fireworks_ai", "priority", PRIORITY),
        (None, None, "fireworks_ai", None, STANDARD),
        ("auto", None, "fireworks_ai", None, STANDARD),
        ("priority", "default", "fireworks_ai", "default", STANDARD),  # should it ever name one
        ("standard_only", None, "fireworks_ai", None, STANDARD),
        ("priority", None, "elsewhere", None, STANDARD),
        (None, None, "always asked", "priority", PRIORITY),
        ("auto", None, "always asked", "priority", PRIORITY),
    ],
)
async def test_fireworks_bills_the_priority_that_was_asked_for(
    asked: str | None,
    named: str | None,
    provider: str,
    tier: str | None,
    pico_usd: int,
    *,
    operation: Operation,
    stream: bool,
) -> None:
    """theopenco/llmgateway#3332: neither its answers nor their headers tell, and what is not served so is refused."""
    prices = load_price_book(providers=["fireworks_ai"]).lookup("fireworks_ai", MODEL, at("2026-11-14"))
    assert prices is not None
    if provider == "elsewhere":
        prices = replace(prices, unreported_tiers=())
    usage = Usage(100_000, output_tokens=100, service_tier=named)
    rig = Rig(follow([Outcome(usage=usage)]))
    model = make_candidate("a", backend="one", provider=provider, prices=prices, context_window=1_000_000)
    if provider == "always asked":
        model = replace(model, asked_tier="priority")
    rig.pipeline.snapshot = make_snapshot(candidates=[model])
    body = {"model": "a", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 100, "stream": stream}
    said = json.dumps(body | {"service_tier": asked}).encode()
    await rig.pipeline.answer(Incoming(operation, f"Bearer {KEY}", said), RecordingCaller())
    assert rig.entry.cost is not None
    assert (rig.entry.service_tier, rig.entry.cost.total_pico_usd) == (tier, pico_usd)
    assert not rig.entry.is_usage_estimated


@pytest.mark.parametrize(
    ("asked", "tier", "quarters", "least"),
    [
        (None, None, 4, 2),
        ("priority", "priority", 8, 2),
        ("flex", "flex", 2, 1),
        ("auto", None, 4, 2),
        ("x", None, 4, 2),
    ],
)
async def test_an_answer_that_broke_off_is_estimated_in_the_tier_that_was_asked_for(
    asked: str | None, tier: str | None, quarters: int, least: int
) -> None:
    services = {"priority": Service(multiplier=Fraction(2)), "flex": Service(multiplier=Fraction(1, 2))}
    prices = ModelPrices(Ladder(Rates(input=40, output=400)), 0, "test", services=services)
    rig = Rig(follow([Outcome(pieces=("x" * 400,) * 3, fault="reset", fault_after_pieces=2)]))
    rig.pipeline.snapshot = make_snapshot(candidates=[make_candidate("a", backend="one", prices=prices)])
    body = {"model": "a", "messages": [{"role": "user", "content": "hello"}], "stream": True}
    said = json.dumps(body if asked is None else body | {"service_tier": asked}).encode()
    await rig.pipeline.answer(Incoming("chat.completions", f"Bearer {KEY}", said), RecordingCaller())
    quarter = (rig.entry.input_tokens * 40 + 200 * 400) // 4
    assert rig.entry.cost is not None
    assert (rig.entry.output_tokens, rig.entry.service_tier, rig.entry.is_usage_estimated) == (200, tier, True)
    assert rig.entry.cost.total_pico_usd == quarter * quarters
    assert rig.entry.cost_lower_pico_usd is not None
    assert abs(rig.entry.cost_lower_pico_usd - quarter * least) <= 40  # half of an odd number of tokens
