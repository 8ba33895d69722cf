"""Drives the fallback policy: makes attempts, one after the other or racing, until one yields its first output."""

import asyncio
import random
from collections.abc import Callable, Collection, Generator, Mapping
from typing import NoReturn

import msgspec

from backends.errors import (
    BackendError,
    StreamBroken,
    UnreadableAnswer,
    Untranslatable,
    UpstreamRejected,
    UpstreamTimeout,
)
from backends.protocol import Backend, Call, Chunk, Timeouts
from backends.response_names import ResponseNames
from gateway.ledger.entry import Attempt, Status
from gateway.pricing.price import has_own_price
from gateway.request.answer_parts import upstream_failure
from gateway.request.bookkeeping import Bookkeeper
from gateway.request.metering import Meter
from gateway.request.run import Answer, Observer, Run
from gateway.request.settlement import NO_EXTRA, ExtraCost, filtered_cost, paid_to, unanswered_cost, unread_cost
from gateway.routing.fallback import LATE, RetryPolicy, Silence, Try, fallback_policy
from gateway.routing.prompt_reuse import marks_for
from gateway.routing.snapshot import Candidate
from gateway.upstreams.load import Upstreams

News = Answer | BackendError | Silence
CALLED_OFF = "called_off"
USUAL_TIMEOUTS = Timeouts()
MOST_BEFORE_OUTPUT_BYTES = 64 << 20
"""Limit of what is buffered before an answer's first output: an event may repeat a long request."""
CHUNK_BYTES = 256
"""Approximate memory of one chunk besides its payload."""


class _Attempt(msgspec.Struct, frozen=True):
    """One try in progress, with its own meter: a race's loser must not be metered as the answer."""

    step: Try
    meter: Meter
    began: float

    @property
    def candidate(self) -> Candidate:
        return self.step.candidate


Race = dict[asyncio.Task[Answer], _Attempt]


class Dispatcher(msgspec.Struct):
    """For one request. Who receives the answer must close the reply and tell `upstreams` that the call ended."""

    backends: Mapping[str, Backend]
    upstreams: Upstreams
    books: Bookkeeper
    observer: Observer
    timeouts: Mapping[str, Timeouts]
    policy: RetryPolicy
    monotonic: Callable[[], float]
    salt: Callable[[Run], str]
    names: Callable[[Run], ResponseNames | None]

    async def first_output(self, run: Run) -> Answer | BackendError | None:
        """Tries candidates until one yields its first output. Otherwise returns the last failure, of a model that can
        express the request if there was one: it may answer later. None if no candidate could be asked."""
        self.upstreams.request_came()
        steps = self._steps(run)
        race: Race = {}
        answer: Answer | None = None
        error: BackendError | None = None
        step = next(steps, None)
        try:
            while step is not None or race:
                news = await self._news(run, step, race)
                if isinstance(news, Answer):
                    answer = news
                    return answer
                if isinstance(news, BackendError):
                    if error is None or isinstance(error, Untranslatable) or not isinstance(news, Untranslatable):
                        error = news
                    await self.books.fund(run, run.choice.order)
                # A failed attempt is not replaced while another is still running.
                step = None if race and news is not LATE else _next(steps, news)
        finally:
            if race:
                await self._end_race(run, race, answer)
        return error

    async def give_up(self, run: Run, error: BackendError | None) -> NoReturn:
        """Settles the request and raises UpstreamFailed; `error` is the last failure."""
        failure = upstream_failure(run, error, self.upstreams.wait_seconds(run.choice.order, self.monotonic()))
        word = "CircuitOpen" if error is None else type(error).__name__
        await self.books.settle(run, Status.failed, http_status=failure.status, error=word)
        try:
            raise failure
        finally:
            del failure  # its traceback refers to this frame, which would keep the whole body alive

    def _steps(self, run: Run) -> Generator[Try | None, BackendError | Silence]:
        limit = run.choice.first_token_seconds or self.policy.first_token_seconds
        # A race may cost twice what a budget holds for one answer, so there is none under a budget.
        is_hedging = self.policy.is_hedging and run.view.is_stream and not self.books.has_budget(run)
        return fallback_policy(
            run.choice.order,
            self.policy,
            pick_key=lambda candidate, wait, refused: self._pick_key(run, candidate, wait, refused),
            may_retry=self.upstreams.may_retry,
            jitter=random.random,
            first_token_seconds=limit if run.view.is_stream else None,  # a whole answer has no first token to wait for
            hedge_seconds=lambda one: self.upstreams.late_seconds(one, self.monotonic()) if is_hedging else None,
        )

    def _pick_key(self, run: Run, candidate: Candidate, wait: float, refused: Collection[str]) -> str | None:
        """A key whose breaker allows a call, if the budget also covers this model, and one more attempt if an abandoned
        one may be billed."""
        key = self.upstreams.pick_key(candidate, self.monotonic() + wait, refused)
        is_held = candidate is run.candidate and run.extra is NO_EXTRA
        return key if key is None or is_held or self.books.can_pay(run, candidate) else None

    async def _news(self, run: Run, step: Try | None, race: Race) -> News:
        """Makes that attempt, if any, and waits for news of it or of the ones in progress."""
        if step is None:
            return await self._first_of(run, race, None)
        if step.overtakes:
            await self._call_off(run, race, UpstreamTimeout("no first token in time"))
        if step.wait_seconds:
            await asyncio.sleep(step.wait_seconds)
        attempt = self._start(run, step)
        if step.patience_seconds is None and not race:
            try:
                answer = await self._open(run, attempt)
            except BackendError as error:
                return self._failed(run, attempt, error)
            except BaseException:
                self._ended(attempt)
                raise
            return self._answered(run, attempt, answer)
        race[asyncio.create_task(self._open(run, attempt))] = attempt
        return await self._first_of(run, race, step.patience_seconds)

    async def _first_of(self, run: Run, race: Race, patience_seconds: float | None) -> News:
        done, _ = await asyncio.wait(race, timeout=patience_seconds, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return LATE
        task = min(done, key=lambda one: (one.exception() is not None, race[one].step.number))
        attempt = race.pop(task)
        error = task.exception()
        if error is None:
            return self._answered(run, attempt, task.result())
        if isinstance(error, BackendError):
            return self._failed(run, attempt, error)
        self._ended(attempt)
        raise error

    def _start(self, run: Run, step: Try) -> _Attempt:
        now, prices = self.monotonic(), step.candidate.prices
        asked = step.candidate.asked_tier or run.view.service_tier
        meter = Meter(run.meter.started_at, sent_at=now)
        if asked and prices is not None:
            meter.asked_tier = asked if has_own_price(prices, asked) else None
            meter.unreported_tier = asked if asked in prices.unreported_tiers else None
        attempt = _Attempt(step, meter, now)
        run.candidate, run.key, run.meter = step.candidate, step.key, attempt.meter
        self.upstreams.started(step.candidate, step.key, now)
        return attempt

    def _ended(self, attempt: _Attempt) -> None:
        """The call ended without telling anything about the upstream."""
        self.upstreams.ended(attempt.candidate)
        self.upstreams.called_off(attempt.candidate, attempt.step.key, self.monotonic())

    def _answered(self, run: Run, attempt: _Attempt, answer: Answer) -> Answer:
        now, step = self.monotonic(), attempt.step
        run.candidate, run.key, run.meter = step.candidate, step.key, attempt.meter
        first = now - attempt.began if run.view.is_stream else None
        self.upstreams.answered(step.candidate, step.key, now, tenant=run.intent.tenant, first_token_seconds=first)
        self._note(run, attempt, "answered", 200, NO_EXTRA)
        return answer

    def _failed(self, run: Run, attempt: _Attempt, error: BackendError) -> BackendError:
        """Records a failed attempt. If it was abandoned, or its answer was unreadable, it may have been billed."""
        # In Python 3.12 and 3.13 a traceback also refers to the coroutines that awaited the raising one. The one that
        # keeps this error would, with the request's whole body, wait for a search for cycles.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        self.upstreams.ended(attempt.candidate)
        now = self.monotonic()
        self.upstreams.failed(attempt.candidate, attempt.step.key, error, now, tenant=run.intent.tenant)
        self.observer.attempt_failed(attempt.candidate, error)
        extra = NO_EXTRA
        if error.usage is not None or isinstance(error, UnreadableAnswer):
            extra = self._unread(run, attempt, error)
        elif error.may_be_billed:
            extra = self._extra(run, attempt)
        elif isinstance(error, UpstreamRejected) and error.is_filtered:
            extra = filtered_cost(attempt.candidate, run.view)
            run.extra = run.extra if extra is NO_EXTRA else run.extra.plus(extra)
        self._note(run, attempt, type(error).__name__, error.status, extra)
        return error

    async def _end_race(self, run: Run, race: Race, winner: Answer | None) -> None:
        """Runs to completion even if the caller leaves meanwhile: otherwise nobody would close the winner's reply."""
        losing = asyncio.create_task(self._call_off(run, race))
        try:
            await asyncio.shield(losing)
        except asyncio.CancelledError:
            await losing
            if winner is not None:
                self.upstreams.ended(run.candidate)
                await winner.reply.aclose()
            raise

    async def _call_off(self, run: Run, race: Race, late: UpstreamTimeout | None = None) -> None:
        """Stops all attempts in progress: the losers of a race, or silent ones that are `late`."""
        for task in race:
            task.cancel()
        await asyncio.gather(*race, return_exceptions=True)
        while race:
            task, attempt = race.popitem()
            self._gave_up(run, attempt, late)  # before the next await, in which the caller may leave
            if not task.cancelled() and task.exception() is None:
                await task.result().reply.aclose()

    def _gave_up(self, run: Run, attempt: _Attempt, late: UpstreamTimeout | None) -> None:
        if late is not None:
            self._failed(run, attempt, late)
            return
        self._ended(attempt)
        if attempt.candidate is not run.candidate:  # the entry itself covers the request's own candidate
            self._note(run, attempt, CALLED_OFF, None, self._extra(run, attempt))

    async def _open(self, run: Run, attempt: _Attempt) -> Answer:
        """Opens the call and reads up to the first output, so that any earlier failure can still fall back."""
        candidate, view = attempt.candidate, run.view
        reply = await self.backends[candidate.backend].open(
            Call(
                view.operation,  # by position: Python collects more than fifteen keywords in a dictionary first
                candidate.upstream_model,
                run.body,
                view.is_stream,
                run.intent.request_id,
                self.timeouts.get(candidate.backend, USUAL_TIMEOUTS),
                view.wants_usage_chunk,
                self.salt(run) if candidate.takes_salt else None,
                attempt.step.key,
                headers=run.headers,
                input_tokens=view.input_tokens,
                response_names=self.names(run) if view.operation == "responses" else None,
                cache_marks=marks_for(run.intent.decision.facts, candidate.cache_writes),
                reasons="reasoning" in candidate.supports,
                previous_response_id=run.previous_response_id,
                is_kept=run.is_kept,
                content_type=run.content_type,
                characters=view.units.characters,
                wants_usage=candidate.prices is not None and candidate.prices.per_character_pico_usd is None,
            )
        )
        first: list[Chunk] = []
        held = 0
        rest = aiter(reply)
        try:
            async for chunk in rest:
                first.append(chunk)
                attempt.meter.observe(chunk, self.monotonic())
                if chunk.has_output or chunk.finish_reason or chunk.is_done or not view.is_stream:
                    return Answer(reply, first, rest)
                held += CHUNK_BYTES + len(chunk.payload)
                if held > MOST_BEFORE_OUTPUT_BYTES:
                    raise StreamBroken(f"{held >> 20} MB came and no first token")
            raise StreamBroken("the answer ended before its first token")
        except StreamBroken as broken:
            await reply.aclose()
            raise UnreadableAnswer(broken.message, usage=broken.usage) from broken
        except BaseException:
            await reply.aclose()
            raise

    def _extra(self, run: Run, attempt: _Attempt) -> ExtraCost:
        extra = unanswered_cost(attempt.candidate, run.view, attempt.meter)
        run.extra = run.extra.plus(extra)
        return extra

    def _unread(self, run: Run, attempt: _Attempt, error: BackendError) -> ExtraCost:
        """Charged to the attempt only: the entry's own figures are for answers that could be passed on."""
        extra = unread_cost(attempt.candidate, run.view, attempt.meter, error)
        run.extra = run.extra.plus(extra)
        if run.meter is attempt.meter:
            run.meter = Meter(run.meter.started_at)
        return extra

    def _note(self, run: Run, attempt: _Attempt, outcome: str, status: int | None, extra: ExtraCost) -> None:
        candidate, began = attempt.candidate, attempt.began
        after, lasted = began - run.meter.started_at, self.monotonic() - began
        run.attempts.append(
            Attempt(
                number=attempt.step.number + run.choice.attempts_before,
                model=candidate.name,
                backend=candidate.backend,
                outcome=outcome,
                started_after_seconds=after if after > 0.0 else 0.0,  # a clock may be set back
                lasted_seconds=lasted if lasted > 0.0 else 0.0,
                cost_pico_usd=extra.estimate_pico_usd,
                http_status=status,
                paid_to=None if extra is NO_EXTRA else paid_to(candidate, extra),
            )
        )


def _next(steps: Generator[Try | None, BackendError | Silence], news: BackendError | Silence) -> Try | None:
    try:
        return steps.send(news)
    except StopIteration:
        return None
