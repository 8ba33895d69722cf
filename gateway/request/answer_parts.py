"""The parts of an answer that the gateway itself adds: headers, and endings that no upstream sent. Pure."""

import msgspec

from backends.endpoints.content_errors import content_error_event
from backends.endpoints.content_events import ContentHead, last_content_event
from backends.endpoints.messages_events import error_event, last_events
from backends.endpoints.responses_items import ResponseHead
from backends.errors import (
    BackendError,
    NoFilesLeft,
    RateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from backends.formats.json_objects import decode_object, part_of, text_of
from backends.protocol import Operation
from gateway.errors import UpstreamFailed
from gateway.ledger.entry import ESCALATED
from gateway.request.run import Run

NO_FILES_SECONDS = 1.0
ABOVE_EVERY_EVENT = (1 << 31) - 1
"""A sequence number for an event of our own in a stream whose events were numbered elsewhere."""


def id_header(operation: Operation) -> str:
    """The header in which an endpoint's official clients look for the request id."""
    return "request-id" if operation.startswith("messages") else "x-request-id"


def answer_headers(run: Run) -> dict[str, str]:
    """The headers of an answer: `x-breakeven-*`, and the request id where clients look for it."""
    difficulty = run.intent.decision.facts.difficulty
    headers = {
        id_header(run.view.operation): run.intent.request_id,
        "x-breakeven-request-id": run.intent.request_id,
        "x-breakeven-model": run.candidate.name,
        "x-breakeven-backend": run.candidate.backend,
        "x-breakeven-rule": run.intent.decision.rule,
        "x-breakeven-difficulty": "unknown" if difficulty is None else f"{difficulty:.4f}",
    }
    if run.choice.attempts_before:
        refused = next((one for one in run.attempts if one.outcome.startswith(ESCALATED)), None)
        headers |= {} if refused is None else {"x-breakeven-escalated-from": refused.model}
    if run.rate_headers:
        headers |= run.rate_headers
    if run.candidate.is_simulated:
        headers["x-breakeven-simulated"] = "true"
    return headers


def cost_text(pico_usd: int) -> str:
    """Exact decimal dollars for a header, without exponent or trailing zeros."""
    whole, fraction = divmod(pico_usd, 10**12)
    return f"{whole}.{fraction:012d}".rstrip("0").rstrip(".")


def stream_error(run: Run, error: BackendError) -> bytes:
    """The event that ends a broken stream instead of `[DONE]`."""
    message = (
        f"The answer of {run.candidate.name!r} broke off: {error.message}. What was sent is charged; "
        f"it was not retried because part of it had reached you (request {run.intent.request_id})."
    )
    if run.view.operation == "messages":
        return error_event(502, message)
    if run.view.operation == "generate_content":
        return content_error_event(502, message)
    told = {"message": message, "type": "server_error", "param": None, "code": "stream_broken"}
    if run.view.operation == "responses":
        return responses_error(told, number=ABOVE_EVERY_EVENT - 1) + _responses_failure(run, message)
    return b"data: " + msgspec.json.encode({"error": told}) + b"\n\n"


def responses_error(error: dict[str, str | None], *, number: int = ABOVE_EVERY_EVENT) -> bytes:
    """OpenAI documents the error's fields at the top level of the event; its clients raise what is in `error`."""
    beside = {name: error[name] for name in ("code", "message", "param")}
    event = {"type": "error", "sequence_number": number, **beside, "error": error}
    return b"event: error\ndata: " + msgspec.json.encode(event) + b"\n\n"


def _responses_failure(run: Run, message: str) -> bytes:
    """Codex passes over `error` and reads this; OpenAI's clients raise nothing for it."""
    failed = _responses_head(run).document(run.candidate.name, [], "failed", None)
    return _responses_event("response.failed", failed | {"error": {"code": "server_error", "message": message}})


def _responses_head(run: Run) -> ResponseHead:
    return ResponseHead(f"resp_{run.intent.request_id}", run.intent.accepted_at_us // 1_000_000, {})


def _responses_event(kind: str, response: dict[str, object]) -> bytes:
    event = {"type": kind, "sequence_number": ABOVE_EVERY_EVENT, "response": response}
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(event))


def budget_end(run: Run) -> bytes:
    """A clean end for a stream whose budget is used up, as if it had reached its output limit."""
    if run.view.operation == "responses":
        return _responses_end(run)
    if run.view.operation == "messages":
        return last_events("length", run.meter.final_usage(run.view.input_tokens, run.candidate.context_window))
    if run.view.operation == "generate_content":
        head = ContentHead(run.intent.request_id, run.candidate.name)
        usage = run.meter.final_usage(run.view.input_tokens, run.candidate.context_window)
        return last_content_event("length", usage, head)
    choice = {"index": 0, "delta": {}, "finish_reason": "length"}
    chunk = {
        "id": f"chatcmpl-{run.intent.request_id}",
        "object": "chat.completion.chunk",
        "created": run.intent.accepted_at_us // 1_000_000,
        "model": run.candidate.name,
        "choices": [choice],
    }
    return b"data: " + msgspec.json.encode(chunk) + b"\n\ndata: [DONE]\n\n"


def _responses_end(run: Run) -> bytes:
    """The same in the Responses API. Its output is empty: the text was in earlier events and is not buffered."""
    incomplete = _responses_head(run).finished(run.candidate.name, [], "length", None)
    return _responses_event("response.incomplete", incomplete)


def rejection(error: UpstreamRejected) -> UpstreamFailed:
    """The error for a request that failed because of its content; passes the provider's error body on if it has one."""
    said = text_of(part_of(decode_object(error.body) or {}, "error"), "message")
    failure = UpstreamFailed(error.message, status=error.status or 400, body=error.body if said else b"")
    failure.type = "invalid_request_error"
    failure.code = "upstream_rejected"
    return failure


def upstream_failure(run: Run, error: BackendError | None, rest_seconds: float | None) -> UpstreamFailed:
    """The caller's error when no attempt answered; `error` is from the last attempt, None if none could be made.

    `rest_seconds` is how long the breakers hold calls back.
    """
    failure = _upstream_failure(run, error, rest_seconds)
    failure.request_id = run.intent.request_id
    return failure


def _upstream_failure(run: Run, error: BackendError | None, rest_seconds: float | None) -> UpstreamFailed:
    if isinstance(error, UpstreamRejected):
        return rejection(error)
    if error is None:
        names = ", ".join(candidate.name for candidate in run.choice.order)
        message = f"Every model for this request is paused after failures: {names}. Try again later."
        return UpstreamFailed(message, status=503, retry_after_seconds=rest_seconds)
    if isinstance(error, NoFilesLeft):
        message = f"This gateway accepts no more requests for now: {error.message}. Try again in a moment."
        return UpstreamFailed(message, status=503, retry_after_seconds=NO_FILES_SECONDS)
    tried = "; ".join(f"{attempt.model} ({attempt.outcome})" for attempt in run.attempts)
    wait = error.retry_after_seconds if isinstance(error, (RateLimited, UpstreamUnavailable)) else None
    status = 429 if isinstance(error, RateLimited) else 504 if isinstance(error, UpstreamTimeout) else 502
    failure = UpstreamFailed(
        f"No model answered: {tried}. Last: {error.message}.", status=status, retry_after_seconds=wait
    )
    if isinstance(error, RateLimited):
        failure.type, failure.code = "rate_limit_error", "rate_limit_exceeded"
    return failure
