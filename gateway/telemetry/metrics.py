"""Prometheus metrics of the request path. Labels contain only catalogue names and our own terms, never a caller's
text."""

from collections import defaultdict
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from backends.errors import BackendError
from gateway.ledger.entry import Entry, Ledger
from gateway.routing.snapshot import Candidate
from gateway.telemetry.series import Counts, Distribution

TIME_BUCKETS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.2, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 300.0)
TAKE_OVER_BUCKETS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 5.0, 30.0)
SPEED_BUCKETS = (1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1280)
TOOLS = ("web_search", "file_search", "other")


class Metrics:
    """Implements pipeline.Observer."""

    def __init__(self, ledger: Ledger) -> None:
        self.registry = CollectorRegistry()
        self._ledger = ledger
        self._listeners: list[Callable[[Entry], None]] = []
        self._requests = self._counts("requests", "Settled requests.", "model", "backend", "status")
        self._tokens = self._counts("tokens", "Tokens by class.", "model", "class")
        self._tools = self._counts("tool_calls", "By tools of providers, billed beside tokens.", "model", "tool")
        self._cost_pico_usd = self._counts("cost_usd", "Cost of settled requests.", "model", parts=10**12)
        self._gpu = self._counts("gpu_seconds", "GPU time of your own engines.", "model")
        self._unpriced = self._counts("unpriced_requests", "Settled without a known price.", "model")
        self._estimated = self._counts("estimated_usage_requests", "Settled on estimated usage.", "model")
        self._first_token = self._distribution("time_to_first_token_seconds", "Streams only.", TIME_BUCKETS)
        self._total = self._distribution("request_duration_seconds", "From accepted to settled.", TIME_BUCKETS)
        self._queue = self._distribution("queue_seconds", "Waiting for the engine.", TIME_BUCKETS)
        self._decode = self._distribution("decode_tokens_per_second", "After the first token.", SPEED_BUCKETS)
        self._attempts = self._counts("failed_attempts", "Attempts that did not answer.", "backend", "error")
        self._notices = self._counts("budget_notices", "Notices to the webhook, by how it went.", "outcome")
        self._pairs = self._counts("judged_pairs", "Shadow answers for the judge, by what came of it.", "outcome")
        self._notices_fail = Gauge(
            "breakeven_budget_notices_failing",
            "1 while a notice waits because the webhook took none of the last tries, of any worker.",
            registry=self.registry,
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
        for name in ("open_intents", "unshipped_entries", "unshipped_seconds", "journal_bytes", "sync_seconds"):
            gauge = Gauge(f"breakeven_ledger_{name}", "See docs/ledger.md.", registry=self.registry)
            gauge.set_function(lambda name=name: float(self._ledger.gauges().get(name, 0.0)))

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Exposes a figure kept elsewhere, read at each scrape."""
        Gauge(f"breakeven_{name}", text, registry=self.registry).set_function(read)

    def tell(self, listener: Callable[[Entry], None]) -> None:
        """Adds a listener for settled requests."""
        self._listeners.append(listener)

    def settled(self, entry: Entry) -> None:
        """Counts a settled request."""
        model, tokens = entry.model, self._tokens
        self._requests[model, entry.backend, str(entry.status)] += 1
        tokens[model, "input"] += entry.input_tokens
        tokens[model, "output"] += entry.output_tokens
        self._total.observe(model, entry.total_seconds)
        if entry.cached_input_tokens:
            tokens[model, "cached_input"] += entry.cached_input_tokens
        if written := entry.cache_write_5m_tokens + entry.cache_write_1h_tokens:
            tokens[model, "cache_write"] += written
        if entry.reasoning_tokens:
            tokens[model, "reasoning"] += entry.reasoning_tokens
        if entry.web_searches or entry.file_searches or entry.other_tool_calls:
            self._count_tools(entry)
        if entry.cost is None:
            self._unpriced[model,] += 1
        else:
            elsewhere = self._paid_elsewhere(entry)  # first, as it may change the sum of this very model
            self._cost_pico_usd[model,] += entry.cost.total_pico_usd - elsewhere
        if entry.is_usage_estimated:
            self._estimated[model,] += 1
        if entry.gpu_seconds:
            self._gpu[model,] += entry.gpu_seconds
        if entry.time_to_first_token_seconds is not None:
            self._first_token.observe(model, entry.time_to_first_token_seconds)
        if entry.queue_seconds is not None:
            self._queue.observe(model, entry.queue_seconds)
        if entry.decode_tokens_per_second is not None:
            self._decode.observe(model, entry.decode_tokens_per_second)
        for listener in self._listeners:
            listener(entry)

    def _paid_elsewhere(self, entry: Entry) -> int:
        """Pico-USD booked to the models of attempts without an answer, as in the ledger."""
        moved = 0
        for one in entry.attempts:
            if one.paid_to is not None and one.cost_pico_usd:
                self._cost_pico_usd[one.model,] += one.cost_pico_usd
                moved += one.cost_pico_usd
        return moved

    def _count_tools(self, entry: Entry) -> None:
        counts = (entry.web_searches, entry.file_searches, entry.other_tool_calls)
        for tool, count in zip(TOOLS, counts, strict=True):
            if count:
                self._tools[entry.model, tool] += count

    def _counts(self, name: str, text: str, *labels: str, parts: int = 1) -> defaultdict[tuple[str, ...], float]:
        counts = Counts(f"breakeven_{name}", text, labels, parts=parts)
        self.registry.register(counts)
        return counts.by_labels

    def _distribution(self, name: str, text: str, bounds: tuple[float, ...]) -> Distribution:
        distribution = Distribution(f"breakeven_{name}", text, bounds)
        self.registry.register(distribution)
        return distribution

    def rules_taken_over(self, seconds: float) -> None:
        """This worker now decides by newly activated rules."""
        self._taken_over.observe(seconds)

    def pair_judged(self, outcome: str) -> None:
        """The judge was asked about two answers, or was not."""
        self._pairs[outcome,] += 1

    def notice_told(self, outcome: str) -> None:
        """A budget notice was sent, or failed."""
        self._notices[outcome,] += 1

    def notices_fail(self, is_failing: bool) -> None:
        """Whether a notice waits to be sent again."""
        self._notices_fail.set(is_failing)

    def unclassified(self) -> None:
        """The classifier failed on a request."""
        self._unclassified.inc()

    def attempt_failed(self, candidate: Candidate, error: BackendError) -> None:
        """An attempt ended without a first chunk."""
        self._attempts[candidate.backend, type(error).__name__] += 1
