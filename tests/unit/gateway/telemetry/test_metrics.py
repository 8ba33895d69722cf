"""What a settled request counts in."""

from prometheus_client import generate_latest

from gateway.ledger.entry import Attempt, Cost, PaidTo
from gateway.telemetry.metrics import Metrics
from tests.memory_ledger import MemoryLedger
from tests.unit.gateway.ledger.builders import make_entry


def test_tools_of_a_provider_are_counted_by_what_they_are() -> None:
    metrics = Metrics(MemoryLedger())
    metrics.settled(make_entry(1))
    assert not any("tool=" in line for line in generate_latest(metrics.registry).decode().splitlines())
    metrics.settled(make_entry(2, web_searches=2, other_tool_calls=1))
    metrics.settled(make_entry(3, web_searches=1, file_searches=4))
    lines = generate_latest(metrics.registry).decode().splitlines()
    for tool, count in (("web_search", 3.0), ("file_search", 4.0), ("other", 1.0)):
        assert f'breakeven_tool_calls_total{{model="mid-hosted",tool="{tool}"}} {count}' in lines


def test_a_refused_answer_costs_under_the_model_that_gave_it() -> None:
    metrics = Metrics(MemoryLedger())
    refused = Attempt(1, "small", "other", "escalated:empty", 0.0, 1.0, 10**12, 200, PaidTo("o", "s", False, 0, None))
    answered = Attempt(2, "mid-hosted", "openai", "answered", 1.0, 1.0, 0, 200)
    cost = Cost(input_pico_usd=2 * 10**12, other_pico_usd=10**12, list_pico_usd=3 * 10**12)
    metrics.settled(make_entry(1, cost=cost, attempts=(refused, answered)))
    lines = generate_latest(metrics.registry).decode().splitlines()
    assert 'breakeven_cost_usd_total{model="small"} 1.0' in lines
    assert 'breakeven_cost_usd_total{model="mid-hosted"} 2.0' in lines


def test_what_a_model_is_paid_for_being_asked_twice_is_counted_twice() -> None:
    metrics = Metrics(MemoryLedger())
    unread = Attempt(
        1, "mid-hosted", "openai", "UnreadableAnswer", 0.0, 1.0, 10**12, 200, PaidTo("o", "m", False, 0, 1)
    )
    answered = Attempt(2, "mid-hosted", "openai", "answered", 1.0, 1.0, 0, 200)
    cost = Cost(input_pico_usd=2 * 10**12, other_pico_usd=10**12, list_pico_usd=3 * 10**12)
    metrics.settled(make_entry(1, cost=cost, attempts=(unread, answered)))
    lines = generate_latest(metrics.registry).decode().splitlines()
    assert 'breakeven_cost_usd_total{model="mid-hosted"} 3.0' in lines


def test_notices_of_budgets_are_counted_by_how_it_went() -> None:
    metrics = Metrics(MemoryLedger())
    for outcome in ("failed", "sent", "sent"):
        metrics.notice_told(outcome)
    lines = generate_latest(metrics.registry).decode().splitlines()
    assert 'breakeven_budget_notices_total{outcome="sent"} 2.0' in lines
    assert 'breakeven_budget_notices_total{outcome="failed"} 1.0' in lines
