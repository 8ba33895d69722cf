"""A request's path, top to bottom. Knows protocols only: no storage, no HTTP framework, no concrete backend.

    authenticate → parse → admit → classify → decide → reserve → intend → dispatch, stream and meter → price → settle
    → last byte

Invariants:

1. The first chunk commits the model. Before it, any failure may fall back. After it, a failure becomes an error event
   in the stream and never a clean `[DONE]`.
2. Every accepted request ends in exactly one settled ledger entry: kill -9, client disconnect, upstream reset and
   database outage included (the journal's recovery settles what this process could not).
3. A decision can be replayed from its entry: the facts, the versions and the draw are stored with it.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from backends.errors import BackendError, RateLimited, StreamBroken, UpstreamRejected, UpstreamTimeout
from backends.errors import UpstreamUnavailable as Unavailable
from backends.protocol import Backend, Call, Chunk, Operation, Reply, Timeouts
from classifier.protocol import Classification, Classifier
from gateway.admission import Admission
from gateway.errors import BreakevenError, UpstreamFailed
from gateway.ids import new_request_id
from gateway.keys import KeyRecord, KeyRing, require_model_access
from gateway.ledger.entry import Attempt, Entry, Facts, Intent, Ledger, Status
from gateway.load import Upstreams
from gateway.metering import Meter
from gateway.request_view import RequestView, parse_request
from gateway.routing.decide import Choice, decide
from gateway.routing.fallback import RetryPolicy, Try, fallback_policy
from gateway.routing.snapshot import Candidate, RequestFacts, Snapshot
from gateway.settlement import Outcome, bound_pico_usd, checkpoint_of, increment_pico_usd, settle_entry

log = logging.getLogger(__name__)
CHECKPOINT_CHARACTERS = 1024  # about 256 output tokens
CHECKPOINT_SECONDS = 5.0


class Caller(Protocol):
    """Whoever asked. Sends nothing after it has gone; going away cancels the task that serves it, until `outlive`."""

    @property
    def is_gone(self) -> bool: ...

    def outlive(self) -> None:
        """From now on the task goes on when the caller leaves: the upstream's answer is read to its end."""
        ...

    async def start(self, *, status: int, content_type: str, headers: Mapping[str, str]) -> None: ...

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        """`chunk` is what `payload` came from; None for an ending of our own making (an error, a spent budget)."""
        ...


class Observer(Protocol):
    """Metrics: told of what happened, never asked."""

    def settled(self, entry: Entry) -> None: ...

    def unclassified(self) -> None: ...

    def attempt_failed(self, candidate: Candidate, error: BackendError) -> None: ...


@dataclass(frozen=True, slots=True)
class Incoming:
    """One request as the HTTP layer received it."""

    operation: Operation
    credential: str | None
    body: bytes
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Answer:
    """A reply whose first output has come: what was read of it, and the rest."""

    reply: Reply
    first: list[Chunk]
    rest: AsyncIterator[Chunk]


@dataclass(slots=True)
class _Run:
    """What is known of a request under way; `entry` is its settlement, once."""

    view: RequestView
    choice: Choice
    intent: Intent
    meter: Meter
    candidate: Candidate
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    entry: Entry | None = None


@dataclass(slots=True)
class Pipeline:
    """Every collaborator is passed in; `snapshot` and `classifier` are replaced whole when rules or models change."""

    keys: KeyRing
    backends: Mapping[str, Backend]
    upstreams: Upstreams
    ledger: Ledger
    observer: Observer
    snapshot: Snapshot
    classifier: Classifier | None
    timeouts: Mapping[str, Timeouts] = field(default_factory=dict[str, Timeouts])
    admission: Admission = field(default_factory=Admission)
    drains: frozenset[str] = frozenset()  # backends that bill the whole answer whoever listens
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    monotonic: Callable[[], float] = time.monotonic
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000
    draw: Callable[[], float] = random.random

    async def answer(self, incoming: Incoming, caller: Caller) -> None:
        """Serve one request to its end. Raises RequestError or LedgerUnavailable only before anything was sent."""
        started_at = self.monotonic()
        key, view = self.identify(incoming)
        self.admission.admit(key.id, tokens=view.input_tokens, now_us=self.now_us())
        choice = self.decide(view, key, incoming.tags)
        intent = self._intent(incoming, view, key, choice)
        run = _Run(view, choice, intent, Meter(started_at), choice.order[0])
        self.admission.reserve(intent.request_id, key.id, self._hold(run, run.candidate), now_us=intent.accepted_at_us)
        try:
            self.ledger.intend(intent)
        except BaseException:
            self.admission.settle(intent.request_id, 0)
            raise
        try:
            await self._serve(run, incoming.body, caller)
        except asyncio.CancelledError:
            await asyncio.shield(self._settle(run, Status.cancelled, http_status=499, error="client_disconnected"))
            raise
        except Exception as error:
            # Whatever broke, the request was accepted: it is booked before anybody hears of the failure.
            await self._settle(run, Status.failed, http_status=500, error=type(error).__name__)
            raise

    def identify(self, incoming: Incoming) -> tuple[KeyRecord, RequestView]:
        """Who asks, and what for."""
        key = self.keys.authenticate(incoming.credential, self.now_us())
        require_model_access(key)
        return key, parse_request(incoming.operation, incoming.body)

    def decide(self, view: RequestView, key: KeyRecord, tags: tuple[str, ...]) -> Choice:
        """Classify and decide; also what `/v1/route` shows, so that it can never differ from the data path."""
        snapshot = self.snapshot
        found = self._classify(view)
        names = snapshot.candidates.keys()
        facts = Facts(
            input_tokens=view.input_tokens,
            max_output_tokens=view.max_output_tokens,
            difficulty=round(found.difficulty, 4) if found else None,
            uncertainty=round(found.uncertainty, 4) if found else None,
            quality={name: round(q.mean, 4) for name, q in found.quality.items() if name in names} if found else {},
            output_tokens={n: round(t, 1) for n, t in found.output_tokens.items() if n in names} if found else {},
            needs=view.needs,
            backend_state=self.upstreams.state(snapshot.candidates.values(), self.monotonic()),
            draw=self.draw(),
        )
        request = RequestFacts(
            requested_model=view.model,
            operation=view.operation,
            key_id=key.id,
            team=key.team,
            project=key.project,
            tags=tuple(sorted({*key.tags, *tags})),
            allowed_models=key.allowed_models,
            facts=facts,
        )
        return decide(request, snapshot)

    def _classify(self, view: RequestView) -> Classification | None:
        if self.classifier is None or view.operation == "embeddings":
            return None
        try:
            return self.classifier.classify(view.conversation)
        except Exception:
            log.exception("classifier failed; the request is decided without it")
            self.observer.unclassified()
            return None

    def _intent(self, incoming: Incoming, view: RequestView, key: KeyRecord, choice: Choice) -> Intent:
        first = choice.order[0]
        return Intent(
            request_id=new_request_id(),
            accepted_at_us=self.now_us(),
            key_id=key.id,
            team=key.team,
            project=key.project,
            tags=tuple(sorted({*key.tags, *incoming.tags})),
            operation=view.operation,
            requested_model=view.model,
            is_stream=view.is_stream,
            decision=choice.decision,
            backend=first.backend,
            provider=first.provider,
            upstream_model=first.upstream_model,
            cost_bound_pico_usd=bound_pico_usd(first, choice.decision, view.choices),
        )

    def _hold(self, run: _Run, candidate: Candidate) -> int | None:
        """What the budget must hold at a candidate: all of a whole answer, of a stream its next increment."""
        decision, choices = run.intent.decision, run.view.choices
        if run.view.is_stream:
            return increment_pico_usd(candidate, decision, run.meter.output_characters, choices)
        return bound_pico_usd(candidate, decision, choices)

    def _may_try(self, run: _Run, candidate: Candidate) -> bool:
        """The breaker lets it through, and a budget that was made for another candidate stretches to this one."""
        return self.upstreams.allows(candidate, self.monotonic()) and (
            candidate is run.candidate or self.admission.extend(run.intent.request_id, self._hold(run, candidate))
        )

    async def _serve(self, run: _Run, body: bytes, caller: Caller) -> None:
        answer = await self._dispatch(run, body)
        if run.candidate.backend in self.drains:
            caller.outlive()
        try:
            if run.view.is_stream:
                await self._stream(run, answer, caller)
            else:
                await self._send_whole(run, answer, caller)
        finally:
            self.upstreams.ended(run.candidate)
            await answer.reply.aclose()

    async def _dispatch(self, run: _Run, body: bytes) -> _Answer:
        """Try candidates until one yields its first output. Raises UpstreamFailed, settled, when none does."""
        steps = fallback_policy(
            run.choice.order,
            self.retry_policy,
            allows=lambda candidate: self._may_try(run, candidate),
            may_retry=self.upstreams.may_retry,
            jitter=random.random,
        )
        self.upstreams.request_came()
        error: BackendError | None = None
        attempt: Try | None = next(steps, None)
        while attempt is not None:
            if attempt.wait_seconds:
                await asyncio.sleep(attempt.wait_seconds)
            run.candidate = attempt.candidate
            began = self.monotonic()
            self.upstreams.started(attempt.candidate)
            try:
                answer = await self._open(run, body)
            except asyncio.CancelledError:
                self.upstreams.ended(attempt.candidate)
                raise
            except BackendError as caught:
                self.upstreams.ended(attempt.candidate)
                error = caught
                run.attempts.append(self._attempt(run, attempt, began, type(caught).__name__, caught.status))
                self.upstreams.failed(attempt.candidate, caught, self.monotonic())
                self.observer.attempt_failed(attempt.candidate, caught)
                try:
                    attempt = steps.send(caught)
                except StopIteration:
                    attempt = None
                continue
            self.upstreams.answered(attempt.candidate)
            run.attempts.append(self._attempt(run, attempt, began, "answered", 200))
            return answer
        failure = _upstream_failure(run, error)
        await self._settle(run, Status.failed, http_status=failure.status, error=_word(error))
        raise failure

    async def _open(self, run: _Run, body: bytes) -> _Answer:
        """Open and read up to the first output, so that everything before it can still fail over."""
        candidate, view = run.candidate, run.view
        reply = await self.backends[candidate.backend].open(
            Call(
                operation=view.operation,
                upstream_model=candidate.upstream_model,
                body=body,
                is_stream=view.is_stream,
                request_id=run.intent.request_id,
                timeouts=self.timeouts.get(candidate.backend, Timeouts()),
                wants_usage_chunk=view.wants_usage_chunk,
                cache_salt=run.intent.team or run.intent.key_id if candidate.is_local else None,
            )
        )
        first: list[Chunk] = []
        rest = aiter(reply)
        try:
            async for chunk in rest:
                first.append(chunk)
                run.meter.observe(chunk, self.monotonic())
                if chunk.has_output or chunk.finish_reason or chunk.is_done or not view.is_stream:
                    return _Answer(reply, first, rest)
            raise StreamBroken("the answer ended before its first token", backend=candidate.backend)
        except StreamBroken as broken:
            await reply.aclose()
            raise Unavailable(broken.message, backend=candidate.backend, status=broken.status) from broken
        except BaseException:
            await reply.aclose()
            raise

    async def _stream(self, run: _Run, answer: _Answer, caller: Caller) -> None:
        await caller.start(status=200, content_type=answer.reply.content_type, headers=answer_headers(run))
        last = Chunk(b"")
        checkpointed_at, checkpointed = self.monotonic(), 0
        try:
            async for chunk in self._observed(run, answer):
                if chunk.is_done:
                    last = chunk
                    break
                await caller.send(chunk.payload, chunk=chunk)
                now = self.monotonic()
                grown = run.meter.output_characters - checkpointed
                if grown >= CHECKPOINT_CHARACTERS or (grown and now - checkpointed_at >= CHECKPOINT_SECONDS):
                    self.ledger.checkpoint(checkpoint_of(run.intent, run.candidate, run.meter))
                    checkpointed_at, checkpointed = now, run.meter.output_characters
                    if not self.admission.extend(run.intent.request_id, self._hold(run, run.candidate)):
                        run.meter.finish_reason = "length"
                        await self._settle(run, Status.completed, http_status=200, error="budget_reached")
                        await caller.send(budget_end(run), is_last=True)
                        return
        except BackendError as error:
            self.upstreams.failed(run.candidate, error, self.monotonic())
            await self._settle(run, Status.partial, http_status=200, error=_word(error))
            await caller.send(stream_error(run, error), is_last=True)
            return
        if caller.is_gone:
            await self._settle(run, Status.cancelled, http_status=499, error="client_disconnected")
            return
        await self._settle(run, Status.completed, http_status=200)
        await caller.send(last.payload, chunk=last, is_last=True)

    async def _observed(self, run: _Run, answer: _Answer) -> AsyncIterator[Chunk]:
        for chunk in answer.first:  # observed as they came
            yield chunk
        async for chunk in answer.rest:
            run.meter.observe(chunk, self.monotonic())
            yield chunk

    async def _send_whole(self, run: _Run, answer: _Answer, caller: Caller) -> None:
        entry = await self._settle(run, Status.completed, http_status=200)
        headers = answer_headers(run)
        if entry.cost is not None:
            headers["x-breakeven-cost-usd"] = cost_text(entry.cost.total_pico_usd)
        await caller.start(status=200, content_type="application/json", headers=headers)
        await caller.send(answer.first[-1].payload, chunk=answer.first[-1], is_last=True)

    async def _settle(self, run: _Run, status: Status, *, http_status: int, error: str | None = None) -> Entry:
        """Book it, once: whoever comes second finds the entry already made."""
        if run.entry is not None:
            return run.entry
        outcome = Outcome(
            status=status,
            http_status=http_status,
            candidate=run.candidate,
            attempts=tuple(run.attempts),
            ended_at=self.monotonic(),
            error=error,
            may_have_been_billed=status is Status.cancelled
            or any(attempt.outcome == UpstreamTimeout.__name__ for attempt in run.attempts),
        )
        run.entry = settle_entry(run.intent, run.meter, outcome)
        cost = run.entry.cost
        self.admission.settle(run.intent.request_id, cost.total_pico_usd if cost is not None else None)
        await self.ledger.settle(run.entry)
        self.observer.settled(run.entry)
        return run.entry

    def _attempt(self, run: _Run, attempt: Try, began: float, outcome: str, status: int | None) -> Attempt:
        return Attempt(
            number=attempt.number,
            model=attempt.candidate.name,
            backend=attempt.candidate.backend,
            outcome=outcome,
            started_after_seconds=max(0.0, began - run.meter.started_at),
            lasted_seconds=max(0.0, self.monotonic() - began),
            http_status=status,
        )


def answer_headers(run: _Run) -> dict[str, str]:
    """The `x-breakeven-*` headers of an answer."""
    difficulty = run.intent.decision.facts.difficulty
    headers = {
        "x-breakeven-request-id": run.intent.request_id,
        "x-breakeven-model": run.candidate.name,
        "x-breakeven-backend": run.candidate.backend,
        "x-breakeven-rule": run.intent.decision.rule,
        "x-breakeven-difficulty": "unknown" if difficulty is None else f"{difficulty:.4f}",
    }
    if run.candidate.is_simulated:
        headers["x-breakeven-simulated"] = "true"
    return headers


def cost_text(pico_usd: int) -> str:
    """Exact decimal dollars for a header, without exponent or trailing zeros."""
    whole, fraction = divmod(pico_usd, 10**12)
    return f"{whole}.{fraction:012d}".rstrip("0").rstrip(".")


def stream_error(run: _Run, error: BackendError) -> bytes:
    """What ends a broken stream instead of `[DONE]`."""
    body = {
        "error": {
            "message": f"The answer of {run.candidate.name!r} broke off: {error.message}. What was sent is charged; "
            f"it was not retried because part of it had reached you (request {run.intent.request_id}).",
            "type": "server_error",
            "param": None,
            "code": "stream_broken",
        }
    }
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def budget_end(run: _Run) -> bytes:
    """A clean end for a stream whose budget allows no more, as if it had reached its output limit."""
    choice = {"index": 0, "delta": {}, "finish_reason": "length"}
    chunk = {
        "id": f"chatcmpl-{run.intent.request_id}",
        "object": "chat.completion.chunk",
        "created": run.intent.accepted_at_us // 1_000_000,
        "model": run.candidate.name,
        "choices": [choice],
    }
    return b"data: " + msgspec.json.encode(chunk) + b"\n\ndata: [DONE]\n\n"


def _upstream_failure(run: _Run, error: BackendError | None) -> UpstreamFailed:
    if isinstance(error, UpstreamRejected):
        failure = UpstreamFailed(error.message, status=error.status or 400)
        failure.type = "invalid_request_error"
        failure.code = "upstream_rejected"
        return failure
    tried = "; ".join(f"{attempt.model} ({attempt.outcome})" for attempt in run.attempts)
    wait = error.retry_after_seconds if isinstance(error, (RateLimited, Unavailable)) else None
    if error is None:
        names = ", ".join(candidate.name for candidate in run.choice.order)
        return UpstreamFailed(f"Every model for this request is resting after failures: {names}.", status=503)
    status = 429 if isinstance(error, RateLimited) else 504 if isinstance(error, UpstreamTimeout) else 502
    return UpstreamFailed(
        f"No model answered: {tried}. Last: {error.message}.", status=status, retry_after_seconds=wait
    )


def _word(error: BackendError | BreakevenError | None) -> str:
    return type(error).__name__ if error is not None else "CircuitOpen"
