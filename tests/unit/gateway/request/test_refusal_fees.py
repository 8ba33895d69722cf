"""xAI charges $0.05 for a prompt that it refuses with a 403 before it generates anything (docs.x.ai, Pricing)."""

import json

import pytest

from backends.errors import BackendError
from backends.http.errors import error_from_status
from backends.protocol import Call, Operation
from backends.scripted import Outcome
from gateway.config.price_files import load_price_book
from gateway.errors import UpstreamFailed
from gateway.ledger.entry import Status
from gateway.pipeline import Incoming
from tests.builders import make_candidate, make_snapshot
from tests.rig import KEY, RecordingCaller, Rig
from tests.unit.gateway.pricing.builders import at

FILTERED = (
    b'{"code":"The caller does not have permission to execute the specified operation","error":"Content violates '
    b'usage guidelines. Team: t, API key ID: k, Model: grok-4.3, Failed check: SAFETY_CHECK_TYPE_BIO"}'
)
TOO_LONG = b'{"code":"invalid-argument","error":"This model\'s maximum prompt length is 256000"}'


@pytest.mark.parametrize(
    ("provider", "operation", "status", "body", "pico_usd", "least"),
    [
        ("xai", "responses", 403, FILTERED, 50_000_000_000, 50_000_000_000),
        ("xai", "chat.completions", 403, FILTERED, 50_000_000_000, 0),  # the page names the Responses API
        ("xai", "messages", 403, FILTERED, 50_000_000_000, 0),
        ("xai", "responses", 400, TOO_LONG, 0, 0),
        ("openrouter", "responses", 403, FILTERED, 0, 0),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_refused_prompt_costs_what_its_provider_charges_for_it(
    provider: str, operation: Operation, status: int, body: bytes, pico_usd: int, least: int, *, stream: bool
) -> None:
    def refuse(call: Call) -> Outcome:
        raise error_from_status(status, {}, body, backend="one")

    model = "grok-4.3"
    prices = load_price_book(providers=["xai"]).lookup("xai", model, at("2026-11-14"))
    assert prices is not None
    if provider != "xai":
        prices = load_price_book(providers=["groq"]).lookup("groq", "openai/gpt-oss-120b", at("2026-11-14"))
    rig = Rig(refuse)
    rig.pipeline.snapshot = make_snapshot(
        candidates=[make_candidate("a", backend="one", provider=provider, prices=prices)]
    )
    asked = {"model": "a", "max_tokens": 100, "stream": stream}
    said = {"input": "hello"} if operation == "responses" else {"messages": [{"role": "user", "content": "hello"}]}
    if operation == "responses":
        del asked["max_tokens"]
    with pytest.raises((UpstreamFailed, BackendError)):
        await rig.pipeline.answer(
            Incoming(operation, f"Bearer {KEY}", json.dumps(asked | said).encode()), RecordingCaller()
        )
    entry = rig.entry
    assert (entry.intent.cost_bound_pico_usd or 0) >= pico_usd
    assert entry.status is Status.failed
    assert entry.cost is not None
    assert entry.cost.total_pico_usd == entry.attempts[0].cost_pico_usd == pico_usd
    assert (entry.cost_lower_pico_usd, entry.is_usage_estimated) == (least, least != pico_usd)
