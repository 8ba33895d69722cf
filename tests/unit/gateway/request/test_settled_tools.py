"""The entry records calls of a provider's own tools; they are charged if a price is known, otherwise the cost is
unknown."""

import json
from dataclasses import replace

import pytest

from backends.formats.responses import read_response
from backends.protocol import Chunk
from backends.usage import Usage
from gateway.ledger.entry import Entry, Status
from gateway.request.metering import Meter
from gateway.request.settlement import Outcome, settle_entry
from tests.builders import make_candidate, make_prices
from tests.unit.gateway.ledger.builders import make_intent

PRICES = replace(make_prices(1.0, 4.0), web_search_pico_usd=10**10, file_search_pico_usd=25 * 10**8)
TOKENS = 9 * 1_000_000 + 3 * 4_000_000


def answered(*items: str) -> Chunk:
    body = {
        "object": "response",
        "status": "completed",
        "output": [{"type": item} for item in items],
        "usage": {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12},
    }
    return read_response(json.dumps(body).encode(), backend="b")


def settled(*items: str) -> Entry:
    meter = Meter(started_at=0.0)
    meter.observe(answered(*items), 1.0)
    return settle_entry(make_intent(), meter, Outcome(Status.completed, 200, make_candidate(prices=PRICES), (), 1.0))


@pytest.mark.parametrize(
    ("items", "other_pico_usd"),
    [
        ((), 0),
        (("message", "function_call"), 0),
        (("web_search_call", "web_search_call", "message"), 2 * 10**10),
        (("file_search_call", "web_search_call"), 10**10 + 25 * 10**8),
    ],
)
def test_searches_are_charged(items: tuple[str, ...], other_pico_usd: int) -> None:
    entry = settled(*items)
    assert (entry.web_searches, entry.file_searches) == (
        items.count("web_search_call"),
        items.count("file_search_call"),
    )
    assert entry.cost is not None
    assert entry.cost.other_pico_usd == other_pico_usd
    assert entry.cost_lower_pico_usd == entry.cost.total_pico_usd == TOKENS + other_pico_usd


def test_a_tool_whose_bill_nobody_tells_leaves_the_cost_unknown() -> None:
    entry = settled("code_interpreter_call", "web_search_call")
    assert (entry.other_tool_calls, entry.web_searches) == (1, 1)
    assert (entry.cost, entry.cost_upper_pico_usd) == (None, None)
    assert entry.cost_lower_pico_usd == TOKENS + 10**10, "the rest of it is known"


def test_what_the_provider_says_it_charges_is_booked_whatever_ran() -> None:
    usage = Usage(9, output_tokens=3, other_tool_calls=8, is_estimated=True, charged_pico_usd=TOKENS + 4)
    meter = Meter(0.0, first_output_at=0.5, output_characters=4, usage=usage)
    for prices, other in ((PRICES, 4), (None, TOKENS + 4)):
        outcome = Outcome(Status.completed, 200, make_candidate(prices=prices), (), 1.0)
        entry = settle_entry(make_intent(), meter, outcome)
        assert entry.cost is not None
        assert entry.cost.other_pico_usd == other
        assert entry.cost_lower_pico_usd == entry.cost_upper_pico_usd == entry.charged_pico_usd == TOKENS + 4


def test_a_usage_that_no_call_can_have_is_estimated_and_costs_no_thousands() -> None:
    absurd = Usage(input_tokens=999_999_999, output_tokens=999_999_999)
    meter = Meter(0.0, first_output_at=0.5, output_characters=400, usage=absurd)
    entry = settle_entry(make_intent(), meter, Outcome(Status.completed, 200, make_candidate(prices=PRICES), (), 1.0))
    assert entry.is_usage_estimated
    assert (entry.input_tokens, entry.output_tokens) == (entry.intent.decision.facts.input_tokens, 100)
    assert entry.cost is not None
    assert entry.cost_upper_pico_usd is not None
    assert entry.cost.total_pico_usd <= entry.cost_upper_pico_usd < 10**12
