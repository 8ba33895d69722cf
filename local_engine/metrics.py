"""Counters of one engine process, readable while it runs and rendered for Prometheus. No torch, no HTTP."""

from collections import deque
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from local_engine.request import Request

SECONDS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 60.0)


@dataclass(frozen=True, slots=True)
class AnswerTimings:
    """One answer's figures for accounting, in seconds; `device_seconds` is its share of the steps it was in."""

    device_seconds: float
    queue_seconds: float
    time_to_first_token_seconds: float | None
    prefill_tokens_per_second: float | None
    decode_tokens_per_second: float | None
    mean_batch_size: float | None


def answer_timings(request: Request, now: float) -> AnswerTimings:
    """Timings of a request so far; `now` is on the engine's clock."""
    timings = request.timings
    started = timings.first_scheduled if timings.first_scheduled is not None else now
    prefill = decode = None
    if timings.first_token is not None and timings.first_token > started:
        prefill = (request.prompt_tokens - (request.cached_prompt_tokens or 0)) / (timings.first_token - started)
    if timings.first_token is not None and timings.last_token is not None and timings.last_token > timings.first_token:
        decode = (request.output_tokens - 1) / (timings.last_token - timings.first_token)
    return AnswerTimings(
        device_seconds=timings.device_seconds,
        queue_seconds=max(0.0, started - timings.arrived),
        time_to_first_token_seconds=None if timings.first_token is None else timings.first_token - timings.arrived,
        prefill_tokens_per_second=prefill,
        decode_tokens_per_second=decode,
        mean_batch_size=timings.batched_requests / timings.steps if timings.steps else None,
    )


@dataclass
class EngineMetrics:
    """Has its own registry, so that two engines in one process share no counters."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"breakeven_engine_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"breakeven_engine_{name}", text, registry=self.registry)

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(f"breakeven_engine_{name}", text, buckets=SECONDS_BUCKETS, registry=self.registry)

        self.requests = counter("requests", "Answers ended, by how", "finish_reason")
        self.prompt_tokens = counter("prompt_tokens", "Prompt tokens of ended answers")
        self.cached_tokens = counter("cached_prompt_tokens", "Prompt tokens found in the prefix cache")
        self.output_tokens = counter("output_tokens", "Tokens drawn")
        self.device_seconds = counter("device_seconds", "Seconds of steps, all requests together")
        self.prefill_tokens = counter("prefill_tokens", "Prompt tokens computed")
        self.steps = counter("steps", "Steps of the engine")
        self.rows = counter("step_rows", "Requests summed over steps; divided by steps it is the batch occupancy")
        self.rejected = counter("rejected", "Requests refused because the queue was full")
        self.drafted = counter("draft_tokens", "Tokens that were guessed before they were drawn")
        self.accepted = counter("accepted_draft_tokens", "Guesses that were what was drawn: steps that were spared")
        self.preemptions = gauge("preemptions", "Requests that had to give their blocks back")
        self.running = gauge("running_requests", "Requests being computed")
        self.waiting = gauge("waiting_requests", "Requests in the queue")
        self.free_slots = gauge("free_slots", "Requests that could start at once")
        self.kv_total = gauge("kv_blocks_total", "KV-cache blocks")
        self.kv_free = gauge("kv_blocks_free", "KV-cache blocks nobody holds")
        self.queue_seconds = histogram("queue_seconds", "Arrival to first scheduled")
        self.first_token_seconds = histogram("time_to_first_token_seconds", "Arrival to first token")
        self.step_seconds = histogram("step_seconds", "Duration of a step")
        self._drafted = self._accepted = 0
        # Each with its request's priority.
        self._recent_queue_seconds: deque[tuple[int, float]] = deque(maxlen=32)

    def recent_queue_seconds(self, priority: int = 0) -> float:
        """Mean wait of recently finished requests at least as important: this one waits behind such requests only."""
        # A copy, made in one go: the step loop's thread adds to it meanwhile.
        recent = [seconds for other, seconds in tuple(self._recent_queue_seconds) if other <= priority]
        return sum(recent) / len(recent) if recent else 0.0

    def record_step(self, seconds: float, *, prefill_tokens: int, drawn_tokens: int, rows: int) -> None:
        """Count one step."""
        self.steps.inc()
        self.rows.inc(rows)
        self.device_seconds.inc(seconds)
        self.step_seconds.observe(seconds)
        self.prefill_tokens.inc(prefill_tokens)
        self.output_tokens.inc(drawn_tokens)

    def record_drafts(self, drafted: int, accepted: int) -> None:
        """Adds the growth of these totals since the last call."""
        self.drafted.inc(drafted - self._drafted)
        self.accepted.inc(accepted - self._accepted)
        self._drafted, self._accepted = drafted, accepted

    def record_end(self, request: Request, timings: AnswerTimings) -> None:
        """Counts one answer that ended, however it did."""
        self.requests.labels(request.finish_reason or "error").inc()
        self.prompt_tokens.inc(request.prompt_tokens)
        self.cached_tokens.inc(request.cached_prompt_tokens or 0)
        self.queue_seconds.observe(timings.queue_seconds)
        self._recent_queue_seconds.append((request.priority, timings.queue_seconds))
        if timings.time_to_first_token_seconds is not None:
            self.first_token_seconds.observe(timings.time_to_first_token_seconds)

    def render(self) -> bytes:
        """Prometheus text format."""
        return generate_latest(self.registry)
