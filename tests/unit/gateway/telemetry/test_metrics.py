"""What a settled request counts in."""

from prometheus_client import generate_latest

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
