"""The body of the step loop: schedule, compute, draw, report. Single-threaded; knows no HTTP and no asyncio.

On a device that runs ahead, a batch is scheduled and begun before the previous one has finished, so that the device
never waits for Python. The end of an answer is then noticed one step late, and what that step drew for it is dropped.
Drafts, constraints, penalties and log-probabilities need the previous step's result: while such a request runs, every
step is waited for.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from local_engine.request import FinishReason, Request, Status
from local_engine.sampling.logprobs import TokenLogprobs
from local_engine.sampling.sampler import Drawn
from local_engine.scheduler import Batch, Row, Scheduler
from local_engine.spec_decode import NgramDrafter
from local_engine.steps import BegunStep, Steps
from local_engine.text.answer_text import AnswerText
from local_engine.text.tokenizer import Tokenizer

# What a device or a product may raise for one batch.
STEP_ERRORS = (RuntimeError, ValueError, IndexError, MemoryError)


@dataclass(frozen=True, slots=True)
class Delta:
    """What a step added to one answer. The last delta has a `finish_reason`."""

    request: Request
    text: str = ""
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])
    finish_reason: FinishReason | None = None
    error: str | None = None
    parameter: str | None = None
    """The request parameter that caused the error; None if the engine did."""
    is_abandoned: bool = False
    """The process ends before this answer does: another one may give it."""
    stop_string: str | None = None
    """The stop string that ended the answer."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """Result of a finished step; zero rows if there was none. Wall-clock seconds; tokens of prompts computed."""

    deltas: list[Delta] = field(default_factory=list[Delta])
    seconds: float = 0.0
    prefill_tokens: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class _Begun:
    """A batch that the device is working on, and when it began."""

    batch: Batch
    step: BegunStep
    at: float


class EngineCore:
    """Owns requests from `add` to their last delta."""

    def __init__(
        self,
        steps: Steps,
        scheduler: Scheduler,
        tokenizer: Tokenizer,
        *,
        context_window: int,
        speculative_tokens: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steps = steps
        self.scheduler = scheduler
        self._tokenizer = tokenizer
        self._context_window = context_window
        self._clock = clock
        self._speculative_tokens = speculative_tokens
        self._texts: dict[str, AnswerText] = {}
        self._drafters: dict[str, NgramDrafter] = {}
        self._begun: _Begun | None = None
        self._last_finished = 0.0
        self.drafted_tokens = 0
        self.accepted_tokens = 0

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.scheduler.running or self.scheduler.waiting or self._begun)

    def add(self, request: Request) -> None:
        """Queues a request. Its clock started on arrival, not here."""
        request.longest = min(request.longest, self._context_window)
        params = request.params
        self._texts[request.request_id] = AnswerText(
            self._tokenizer, params.stop, includes_stop=params.includes_stop, shows_special=params.shows_special
        )
        if self._speculative_tokens and request.params.constraint is None:
            self._drafters[request.request_id] = NgramDrafter(self._speculative_tokens)
        self.scheduler.add(request)

    def cancel(self, request: Request) -> None:
        """Drops a request and frees its blocks at once. Idempotent."""
        request.finish_reason = request.finish_reason or "cancelled"
        self._forget(request)

    def step(self) -> StepReport:
        """Begin a batch and finish the previous one; if the device does not run ahead, also finish the new one.

        A device exception ends that batch's requests with an error, not the engine. Raises DeviceLost if no later step
        could succeed.
        """
        report, before = StepReport(), self._begun
        if before is not None and not self._may_run_ahead():
            report, before = self._finish(before), None
        self._begun, failed = self._begin()
        if before is not None:
            report = self._finish(before)
        elif self._begun is not None and not self._steps.runs_ahead:
            report, self._begun = self._finish(self._begun), None
        return replace(report, deltas=report.deltas + failed)

    def _may_run_ahead(self) -> bool:
        """Whether every running request's next row can be computed and drawn before its last token is known."""
        return not any(
            request.params.draws_from_answer
            or request.params.logprobs is not None
            or request.request_id in self._drafters
            for request in self.scheduler.running
        )

    def _begin(self) -> tuple[_Begun | None, list[Delta]]:
        """Hands the next batch to the device; also returns errors for requests that cannot run."""
        began = self._clock()
        batch = self.scheduler.schedule()
        failed = [self._fail(request, "The KV cache is too small for this request.") for request in batch.unfit]
        if not batch.rows:
            return None, failed
        for row in batch.rows:
            if row.request.timings.first_scheduled is None:
                row.request.timings.first_scheduled = began
        try:
            step = self._steps.begin(batch)
        except STEP_ERRORS as error:
            self._steps.check()
            return None, failed + self._fail_rows(batch, error)
        self.scheduler.begin(batch)
        return _Begun(batch, step, began), failed

    def _finish(self, begun: _Begun) -> StepReport:
        """Waits for a batch and reports its results, dropping rows of requests that have ended since."""
        batch = begun.batch
        try:
            drawn = begun.step.wait()
        except STEP_ERRORS as error:
            self._steps.check()
            return StepReport(self._fail_rows(batch, error), rows=len(batch.rows))
        now = self._clock()
        seconds, self._last_finished = now - max(begun.at, self._last_finished), now
        live = [(row, new) for row, new in zip(batch.rows, drawn, strict=True) if _is_live(row)]
        self._charge(batch, [row for row, _ in live], seconds)
        decoded = sum(1 + row.drafts for row, _ in live if row.start >= row.request.prompt_tokens)
        computed = sum(row.count for row, _ in live)
        deltas: list[Delta] = []
        for row, new in live:
            if row.needs_logits:
                deltas.append(self._complete(row, new, now))
                continue
            self.scheduler.complete(row, [])
            if not row.request.draws and row.start + row.count == row.request.prompt_tokens:
                deltas.append(self._end_undrawn(row.request))
        return StepReport(deltas, seconds, computed - decoded, len(batch.rows))

    def _charge(self, batch: Batch, live: list[Row], seconds: float) -> None:
        """Divides the step's duration among all its rows by tokens computed; the shares of dropped rows are charged to
        nobody."""
        a_token = seconds / batch.tokens
        for row in live:
            timings = row.request.timings
            timings.device_seconds += a_token * row.count
            timings.steps += 1
            timings.batched_requests += len(batch.rows)

    def _complete(self, row: Row, drawn: Drawn, now: float) -> Delta:
        """Takes new tokens one by one until one ends the answer."""
        if drawn.is_broken:
            return self._fail(row.request, "The model's logits are no numbers: its weights are damaged.")
        if drawn.failure is not None:
            constraint = row.request.params.constraint
            message = f"The answer can no longer be kept to its constraint: {drawn.failure}"
            return self._fail(row.request, message, None if constraint is None else constraint.parameter)
        request, text, taken = row.request, "", 0
        answer = self._texts[request.request_id]
        reason: FinishReason | None = None
        for token in drawn.token_ids:
            taken += 1
            reason = self._ends(request, token, request.output_tokens + taken)
            # Where a constraint says the end, it may come before min_tokens.
            if drawn.is_complete and taken == len(drawn.token_ids) and token in request.params.stop_token_ids:
                reason = "stop"
            if reason != "stop" or request.params.includes_stop:
                text += answer.push(token, may_stop=request.output_tokens + taken > request.params.min_tokens)
            if answer.stopped_by is not None:
                reason = "stop"
            if reason is not None:
                break
        if reason is None and drawn.is_complete:
            reason = "stop"
        self.scheduler.complete(row, drawn.token_ids[:taken])
        timings = request.timings
        timings.first_token = timings.first_token if timings.first_token is not None else now
        timings.last_token = now
        if reason is not None:
            text += answer.finish()
            request.finish_reason = reason
            self._forget(request)
        else:
            self._draft(request, row.drafts, taken - 1)
        return Delta(
            request, text, drawn.token_ids[:taken], drawn.logprobs[:taken], reason, stop_string=answer.stopped_by
        )

    def _end_undrawn(self, request: Request) -> Delta:
        """Ends a request for which only the prompt had to be computed."""
        request.finish_reason = "length"
        self._forget(request)
        return Delta(request, finish_reason="length")

    def _draft(self, request: Request, proposed: int, accepted: int) -> None:
        """Proposes tokens for the next step to verify."""
        drafter = self._drafters.get(request.request_id)
        if drafter is None:
            return
        drafter.learn(proposed, accepted, len(request.token_ids))
        self.drafted_tokens += proposed
        self.accepted_tokens += accepted
        room = request.longest - len(request.token_ids) - 1
        request.draft_token_ids = drafter.propose(request.token_ids)[: max(0, room)]

    def _ends(self, request: Request, token: int, output_tokens: int) -> FinishReason | None:
        params = request.params
        is_end = token in params.stop_token_ids and output_tokens > params.min_tokens
        if is_end:
            return "stop"
        return "length" if request.prompt_tokens + output_tokens >= request.longest else None

    def _fail_rows(self, batch: Batch, error: Exception) -> list[Delta]:
        return [self._fail(row.request, f"The step failed: {error}") for row in batch.rows if _is_live(row)]

    def _fail(self, request: Request, message: str, parameter: str | None = None) -> Delta:
        request.finish_reason = "error"
        self._forget(request)
        return Delta(request, finish_reason="error", error=message, parameter=parameter)

    def _forget(self, request: Request) -> None:
        self.scheduler.remove(request)
        self._steps.forget(request.request_id)
        self._texts.pop(request.request_id, None)
        self._drafters.pop(request.request_id, None)


def _is_live(row: Row) -> bool:
    return row.request.status is not Status.FINISHED
