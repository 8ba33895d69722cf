"""Prometheus metrics of the request path. Labels take catalogue names and our own words only, never a caller's text."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from backends.errors import BackendError
from gateway.ledger.entry import Entry, Ledger
from gateway.routing.snapshot import Candidate

TIME_BUCKETS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.2, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 300.0)
TAKE_OVER_BUCKETS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 5.0, 30.0)
SPEED_BUCKETS = (1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1280)
RARER_TOKEN_CLASSES = ("cached_input", "cache_write", "reasoning")

TOOLS = ("web_search", "file_search", "other")


class _Usual(NamedTuple):
    """The series that nearly every request counts in, found at once."""

    requests: Counter
    input_tokens: Counter
    output_tokens: Counter
    cost: Counter
    total: Histogram


class Metrics:
    """Implements pipeline.Observer."""

    def __init__(self, ledger: Ledger) -> None:
        self.registry = CollectorRegistry()
        self._ledger = ledger
        # Finding a series by its labels costs more than counting in it.
        self._counter = cache(Counter.labels)
        self._distribution = cache(Histogram.labels)
        self._usual = cache(self._find_usual)
        self._listeners: list[Callable[[Entry], None]] = []
        self._requests = Counter(
            "breakeven_requests", "Settled requests.", ("model", "backend", "status"), registry=self.registry
        )
        self._tokens = Counter("breakeven_tokens", "Tokens by class.", ("model", "class"), registry=self.registry)
        self._tools = Counter(
            "breakeven_tool_calls",
            "By tools of providers, billed beside tokens.",
            ("model", "tool"),
            registry=self.registry,
        )
        self._cost = Counter("breakeven_cost_usd", "Cost of settled requests.", ("model",), registry=self.registry)
        self._gpu = Counter(
            "breakeven_gpu_seconds", "GPU time of your own engines.", ("model",), registry=self.registry
        )
        self._unpriced = Counter(
            "breakeven_unpriced_requests", "Settled without a known price.", ("model",), registry=self.registry
        )
        self._estimated = Counter(
            "breakeven_estimated_usage_requests", "Settled on estimated usage.", ("model",), registry=self.registry
        )
        self._first_token = self._histogram("time_to_first_token_seconds", "Streams only.", TIME_BUCKETS)
        self._total = self._histogram("request_duration_seconds", "From accepted to settled.", TIME_BUCKETS)
        self._queue = self._histogram("queue_seconds", "Waiting for the engine.", TIME_BUCKETS)
        self._decode = self._histogram("decode_tokens_per_second", "After the first token.", SPEED_BUCKETS)
        self._attempts = Counter(
            "breakeven_failed_attempts", "Attempts that did not answer.", ("backend", "error"), registry=self.registry
        )
        self._unclassified = Counter(
            "breakeven_unclassified_requests", "Decided without the classifier.", registry=self.registry
        )
        self._taken_over = Histogram(
            "breakeven_rules_taken_over_seconds",
            "From an activation, wherever it was made, to this worker deciding by it.",
            buckets=TAKE_OVER_BUCKETS,
            registry=self.registry,
        )
        for name in ("open_intents", "unshipped_entries", "unshipped_seconds", "journal_bytes"):
            gauge = Gauge(f"breakeven_ledger_{name}", "See docs/ledger.md.", registry=self.registry)
            gauge.set_function(lambda name=name: float(self._ledger.gauges().get(name, 0.0)))

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Show a figure that somebody else keeps, as it is when asked."""
        Gauge(f"breakeven_{name}", text, registry=self.registry).set_function(read)

    def tell(self, listener: Callable[[Entry], None]) -> None:
        """Tell somebody else of every settled request too."""
        self._listeners.append(listener)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"breakeven_{name}", text, ("model",), buckets=buckets, registry=self.registry)

    def _paid_elsewhere(self, entry: Entry) -> int:
        """Pico-USD that stand under the model of an attempt without an answer, as in the books."""
        moved = 0
        for one in entry.attempts:
            if one.paid_to is not None and one.cost_pico_usd:
                self._counter(self._cost, one.model).inc(one.cost_pico_usd / 1e12)
                moved += one.cost_pico_usd
        return moved

    def settled(self, entry: Entry) -> None:
        """Count a settled request."""
        model = entry.model
        usual = self._usual(model, entry.backend, entry.status.value)
        usual.requests.inc()
        usual.input_tokens.inc(entry.input_tokens)
        usual.output_tokens.inc(entry.output_tokens)
        usual.total.observe(entry.total_seconds)
        written = entry.cache_write_5m_tokens + entry.cache_write_1h_tokens
        counts = (entry.cached_input_tokens, written, entry.reasoning_tokens)
        for token_class, count in zip(RARER_TOKEN_CLASSES, counts, strict=True):
            if count:
                self._counter(self._tokens, model, token_class).inc(count)
        for tool, count in zip(TOOLS, (entry.web_searches, entry.file_searches, entry.other_tool_calls), strict=True):
            if count:
                self._counter(self._tools, model, tool).inc(count)
        if entry.cost is None:
            self._counter(self._unpriced, model).inc()
        else:
            usual.cost.inc((entry.cost.total_pico_usd - self._paid_elsewhere(entry)) / 1e12)
        if entry.is_usage_estimated:
            self._counter(self._estimated, model).inc()
        if entry.gpu_seconds:
            self._counter(self._gpu, model).inc(entry.gpu_seconds)
        for histogram, value in (
            (self._first_token, entry.time_to_first_token_seconds),
            (self._queue, entry.queue_seconds),
            (self._decode, entry.decode_tokens_per_second),
        ):
            if value is not None:
                self._distribution(histogram, model).observe(value)
        for listener in self._listeners:
            listener(entry)

    def _find_usual(self, model: str, backend: str, status: str) -> _Usual:
        return _Usual(
            self._requests.labels(model, backend, status),
            self._tokens.labels(model, "input"),
            self._tokens.labels(model, "output"),
            self._cost.labels(model),
            self._total.labels(model),
        )

    def rules_taken_over(self, seconds: float) -> None:
        """This worker decides by newly activated rules."""
        self._taken_over.observe(seconds)

    def unclassified(self) -> None:
        """The classifier failed on a request."""
        self._unclassified.inc()

    def attempt_failed(self, candidate: Candidate, error: BackendError) -> None:
        """An attempt ended without a first chunk."""
        self._attempts.labels(candidate.backend, type(error).__name__).inc()
