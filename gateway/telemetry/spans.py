"""OpenTelemetry: every settled request as a span and as GenAI metrics, made from its ledger entry. Never a prompt.

The span belongs to the trace that the caller named in `traceparent`; otherwise it begins one.
Wraps another observer, so that a deployment without telemetry executes none of it.

Names and buckets follow OpenTelemetry's semantic conventions for generative AI.
"""

from dataclasses import dataclass
from typing import Final

from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, MeterProvider
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TracerProvider,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from backends.errors import BackendError
from gateway.ledger.entry import ESCALATED, Attempt, Entry
from gateway.ledger.entry import Status as Settled
from gateway.request.run import Observer
from gateway.routing.snapshot import Candidate

SCOPE: Final = "breakeven"
TOKEN_BUCKETS: Final = [4.0**power for power in range(14)]
DURATION_BUCKETS: Final = [0.01 * 2.0**power for power in range(14)]
FIRST_TOKEN_BUCKETS: Final = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
]  # fmt: skip
PER_TOKEN_BUCKETS: Final = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5]
OPERATIONS: Final = {
    "chat.completions": "chat",
    "responses": "chat",
    "messages": "chat",
    "completions": "text_completion",
}
FAILED: Final = frozenset({Settled.failed, Settled.partial, Settled.orphaned})

Attributes = dict[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class _Histograms:
    tokens: Histogram
    duration: Histogram
    first_token: Histogram
    per_token: Histogram


class Telemetry:
    """Implements Observer. Whoever made the providers shuts them down."""

    def __init__(self, next_observer: Observer, traces: TracerProvider, metrics: MeterProvider) -> None:
        self._next = next_observer
        self._tracer = traces.get_tracer(SCOPE)
        meter = metrics.get_meter(SCOPE)

        def histogram(name: str, unit: str, buckets: list[float]) -> Histogram:
            return meter.create_histogram(name, unit=unit, explicit_bucket_boundaries_advisory=buckets)

        self._histograms = _Histograms(
            tokens=histogram("gen_ai.client.token.usage", "{token}", TOKEN_BUCKETS),
            duration=histogram("gen_ai.client.operation.duration", "s", DURATION_BUCKETS),
            first_token=histogram("gen_ai.server.time_to_first_token", "s", FIRST_TOKEN_BUCKETS),
            per_token=histogram("gen_ai.server.time_per_output_token", "s", PER_TOKEN_BUCKETS),
        )

    def settled(self, entry: Entry) -> None:
        """Records the request's span, with a child per attempt, and its metrics."""
        self._next.settled(entry)
        shared = common_attributes(entry)
        self._trace(entry, shared)
        self._measure(entry, shared)

    def unclassified(self) -> None:
        self._next.unclassified()

    def attempt_failed(self, candidate: Candidate, error: BackendError) -> None:
        self._next.attempt_failed(candidate, error)

    def _trace(self, entry: Entry, shared: Attributes) -> None:
        began = entry.intent.accepted_at_us * 1000
        span = self._tracer.start_span(
            f"{shared['gen_ai.operation.name']} {entry.model}",
            context=callers_context(entry.intent.traceparent),
            kind=SpanKind.SERVER,
            attributes=shared | span_attributes(entry),
            start_time=began,
        )
        inside = set_span_in_context(span)
        for attempt in entry.attempts:
            started = began + _nanoseconds(attempt.started_after_seconds)
            child = self._tracer.start_span(
                f"{shared['gen_ai.operation.name']} {attempt.model}",
                context=inside,
                kind=SpanKind.CLIENT,
                attributes=attempt_attributes(attempt),
                start_time=started,
            )
            if not _is_fine(attempt):
                child.set_status(Status(StatusCode.ERROR, attempt.outcome))
            child.end(started + _nanoseconds(attempt.lasted_seconds))
        if entry.status in FAILED:
            span.set_status(Status(StatusCode.ERROR, entry.error))
        span.end(began + _nanoseconds(entry.total_seconds))

    def _measure(self, entry: Entry, shared: Attributes) -> None:
        figures = self._histograms
        figures.tokens.record(entry.input_tokens, shared | {"gen_ai.token.type": "input"})
        figures.tokens.record(entry.output_tokens, shared | {"gen_ai.token.type": "output"})
        figures.duration.record(entry.total_seconds, shared)
        if entry.time_to_first_token_seconds is not None:
            figures.first_token.record(entry.time_to_first_token_seconds, shared)
        if entry.decode_tokens_per_second:
            figures.per_token.record(1 / entry.decode_tokens_per_second, shared)


def callers_context(traceparent: str | None) -> Context | None:
    """The caller's span as our parent; `traceparent` was validated on arrival."""
    if traceparent is None:
        return None
    _, trace_id, span_id, flags = traceparent.split("-")[:4]
    remote = SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))
    return set_span_in_context(NonRecordingSpan(remote))


def common_attributes(entry: Entry) -> Attributes:
    """For spans and metrics: catalogue names and our own terms, never a caller's text."""
    attributes: Attributes = {
        "gen_ai.operation.name": OPERATIONS.get(entry.intent.operation, entry.intent.operation),
        "gen_ai.provider.name": entry.provider,
        "gen_ai.request.model": entry.model,
        "gen_ai.response.model": entry.upstream_model,
    }
    return attributes | ({"error.type": entry.error or entry.status.value} if entry.status in FAILED else {})


def span_attributes(entry: Entry) -> Attributes:
    """Attributes of spans only."""
    attributes: Attributes = {
        "gen_ai.usage.input_tokens": entry.input_tokens,
        "gen_ai.usage.output_tokens": entry.output_tokens,
        "http.response.status_code": entry.http_status,
        "breakeven.request_id": entry.intent.request_id,
        "breakeven.rule": entry.intent.decision.rule,
        "breakeven.backend": entry.backend,
        "breakeven.status": entry.status.value,
    }
    if entry.finish_reason is not None:
        attributes["gen_ai.response.finish_reasons"] = (entry.finish_reason,)
    if entry.cost is not None:
        attributes["breakeven.cost_usd"] = entry.cost.total_pico_usd / 1e12
    return attributes


def attempt_attributes(attempt: Attempt) -> Attributes:
    attributes: Attributes = {"gen_ai.request.model": attempt.model, "breakeven.backend": attempt.backend}
    if attempt.http_status is not None:
        attributes["http.response.status_code"] = attempt.http_status
    return attributes | ({} if _is_fine(attempt) else {"error.type": attempt.outcome})


def _is_fine(attempt: Attempt) -> bool:
    """Nothing was wrong with the upstream."""
    return attempt.outcome in ("answered", "called_off") or attempt.outcome.startswith(ESCALATED)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
