"""Counted here, and shown as prometheus_client shows what it counts itself."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from gateway.ledger.entry import Cost
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.series import Counts, Distribution
from tests.memory_ledger import MemoryLedger
from tests.unit.gateway.ledger.builders import make_entry

BOUNDS = (0.1, 1, 10.5)


def shown(registry: CollectorRegistry) -> list[str]:
    return sorted(line for line in generate_latest(registry).decode().splitlines() if "_created" not in line)


def test_a_histogram_is_shown_as_prometheus_own() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    distribution = Distribution("seconds", "How long.", BOUNDS)
    ours.register(distribution)
    histogram = Histogram("seconds", "How long.", ("model",), buckets=BOUNDS, registry=theirs)
    for model, value in (("a", 0.1), ("a", 0.100001), ("a", 1.0), ("a", 11.0), ("b", 0.0), ("b", -1.0)):
        distribution.observe(model, value)
        histogram.labels(model).observe(value)
    assert shown(ours) == shown(theirs)


def test_a_counter_is_shown_as_prometheus_own() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counts = Counts("cost_usd", 'A "quoted" text.', ("model", "class"), parts=10**12)
    ours.register(counts)
    counter = Counter("cost_usd", 'A "quoted" text.', ("model", "class"), registry=theirs)
    for model, picos in (("a", 5 * 10**11), ("a", 2 * 10**12), ("b\n", 0)):
        counts.by_labels[model, "input"] += picos
        counter.labels(model, "input").inc(picos / 10**12)
    assert shown(ours) == shown(theirs)


def test_cents_add_up_to_the_dollar() -> None:
    """Floats added ten times would show 0.9999999999999999."""
    metrics = Metrics(MemoryLedger())
    for number in range(10):
        metrics.settled(make_entry(number, cost=Cost(input_pico_usd=10**11)))
    assert 'breakeven_cost_usd_total{model="mid-hosted"} 1.0' in shown(metrics.registry)
