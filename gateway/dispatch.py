"""Drives the fallback policy: opens one attempt after the other until one of them yields its first output."""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from backends.errors import BackendError, StreamBroken, UpstreamUnavailable
from backends.protocol import Backend, Call, Chunk, Timeouts
from gateway.answer_parts import upstream_failure
from gateway.bookkeeping import Bookkeeper
from gateway.ledger.entry import Attempt, Status
from gateway.load import Upstreams
from gateway.routing.fallback import RetryPolicy, Try, fallback_policy
from gateway.routing.snapshot import Candidate
from gateway.run import Answer, Observer, Run


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """For one request. Whoever gets its answer closes the reply and tells `upstreams` that the call ended."""

    backends: Mapping[str, Backend]
    upstreams: Upstreams
    books: Bookkeeper
    observer: Observer
    timeouts: Mapping[str, Timeouts]
    policy: RetryPolicy
    monotonic: Callable[[], float]

    async def first_output(self, run: Run) -> Answer:
        """Try candidates until one yields its first output. Raises UpstreamFailed, settled, when none does."""
        steps = fallback_policy(
            run.choice.order,
            self.policy,
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
            outcome = await self._try(run, attempt)
            if isinstance(outcome, Answer):
                return outcome
            error = outcome
            await self.books.fund(run, run.choice.order)
            try:
                attempt = steps.send(error)
            except StopIteration:
                attempt = None
        failure = upstream_failure(run, error)
        word = "CircuitOpen" if error is None else type(error).__name__
        await self.books.settle(run, Status.failed, http_status=failure.status, error=word)
        raise failure

    def _may_try(self, run: Run, candidate: Candidate) -> bool:
        """The breaker lets it through, and a budget that was made for another candidate stretches to this one."""
        return self.upstreams.allows(candidate, self.monotonic()) and (
            candidate is run.candidate or self.books.can_pay(run, candidate)
        )

    async def _try(self, run: Run, attempt: Try) -> Answer | BackendError:
        """One attempt, noted as a child of the request."""
        run.candidate = attempt.candidate
        began = self.monotonic()
        self.upstreams.started(attempt.candidate)
        try:
            answer = await self._open(run)
        except BackendError as error:
            self.upstreams.ended(attempt.candidate)
            self.upstreams.failed(attempt.candidate, error, self.monotonic())
            self.observer.attempt_failed(attempt.candidate, error)
            run.attempts.append(self._child(run, attempt, began, type(error).__name__, error.status))
            return error
        except BaseException:
            self.upstreams.ended(attempt.candidate)
            raise
        self.upstreams.answered(attempt.candidate)
        run.attempts.append(self._child(run, attempt, began, "answered", 200))
        return answer

    async def _open(self, run: Run) -> Answer:
        """Open and read up to the first output, so that everything before it can still fail over."""
        candidate, view = run.candidate, run.view
        reply = await self.backends[candidate.backend].open(
            Call(
                operation=view.operation,
                upstream_model=candidate.upstream_model,
                body=run.body,
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
                    return Answer(reply, first, rest)
            raise StreamBroken("the answer ended before its first token", backend=candidate.backend)
        except StreamBroken as broken:
            await reply.aclose()
            raise UpstreamUnavailable(broken.message, backend=candidate.backend, status=broken.status) from broken
        except BaseException:
            await reply.aclose()
            raise

    def _child(self, run: Run, attempt: Try, began: float, outcome: str, status: int | None) -> Attempt:
        return Attempt(
            number=attempt.number,
            model=attempt.candidate.name,
            backend=attempt.candidate.backend,
            outcome=outcome,
            started_after_seconds=max(0.0, began - run.meter.started_at),
            lasted_seconds=max(0.0, self.monotonic() - began),
            http_status=status,
        )
