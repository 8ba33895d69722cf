"""The step loop's body: schedule, compute, draw, tell. Single-threaded; knows no HTTP and no asyncio."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch

from local_engine.answer_text import AnswerText
from local_engine.request import FinishReason, Request
from local_engine.sampler import Drawn, Sampler, TokenLogprobs
from local_engine.scheduler import Batch, Row, Scheduler
from local_engine.spec_decode import NgramDrafter
from local_engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Delta:
    """What a step added to one answer. The last one has a `finish_reason`."""

    request: Request
    text: str = ""
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])
    finish_reason: FinishReason | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step did, for metrics. Seconds of wall clock; tokens computed and drawn."""

    deltas: list[Delta]
    seconds: float
    prefill_tokens: int
    decode_tokens: int
    rows: int


class Runner(Protocol):
    """Computes a batch; the model runner, or a scripted one in tests."""

    @property
    def device(self) -> torch.device: ...

    def run(self, batch: Batch) -> torch.Tensor: ...


class EngineCore:
    """Owns the requests from `add` to their last delta."""

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        tokenizer: Tokenizer,
        *,
        context_window: int,
        sampler: Sampler | None = None,
        speculative_tokens: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self.scheduler = scheduler
        self._tokenizer = tokenizer
        self._context_window = context_window
        self._clock = clock
        self._sampler = sampler or Sampler(runner.device)
        self._speculative_tokens = speculative_tokens
        self._texts: dict[str, AnswerText] = {}
        self._drafters: dict[str, NgramDrafter] = {}
        self.drafted_tokens = 0
        self.accepted_tokens = 0

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.scheduler.running or self.scheduler.waiting)

    def add(self, request: Request) -> None:
        """Queue a request; its clock starts when it arrived, not here."""
        self._texts[request.request_id] = AnswerText(self._tokenizer, request.params.stop)
        if self._speculative_tokens and request.params.constraint is None:
            self._drafters[request.request_id] = NgramDrafter(self._speculative_tokens)
        self.scheduler.add(request)

    def cancel(self, request: Request) -> None:
        """Drop a request and free its blocks at once. Idempotent."""
        request.finish_reason = request.finish_reason or "cancelled"
        self._forget(request)

    def step(self) -> StepReport:
        """Compute one batch. An exception of the device ends that batch's requests with an error, not the engine."""
        began = self._clock()
        batch = self.scheduler.schedule()
        deltas = [self._fail(request, "The KV cache is too small for this request.") for request in batch.unfit]
        if not batch.rows:
            return StepReport(deltas, 0.0, 0, 0, 0)
        for row in batch.rows:
            if row.request.timings.first_scheduled is None:
                row.request.timings.first_scheduled = began
        try:
            logits = self._runner.run(batch)
            drawn = self._draw(batch, logits)
        except (RuntimeError, ValueError, IndexError, MemoryError) as error:
            deltas += [self._fail(row.request, f"The step failed: {error}") for row in batch.rows]
            return StepReport(deltas, self._clock() - began, 0, 0, len(batch.rows))
        now = self._clock()
        self._charge(batch, now - began)
        decoded = sum(1 + row.drafts for row in batch.rows if row.start >= row.request.prompt_tokens)
        for row, new in zip(batch.rows, drawn, strict=True):
            if row.needs_logits:
                deltas.append(self._complete(row, new, now))
            else:
                self.scheduler.complete(row, [])
        return StepReport(deltas, now - began, batch.tokens - decoded, decoded, len(batch.rows))

    def _charge(self, batch: Batch, seconds: float) -> None:
        """Split the step's duration over its rows by tokens computed."""
        for row in batch.rows:
            timings = row.request.timings
            timings.device_seconds += seconds * row.count / batch.tokens
            timings.steps += 1
            timings.batched_requests += len(batch.rows)

    def _draw(self, batch: Batch, logits: torch.Tensor) -> list[Drawn]:
        """One draw per row, empty for a row whose prompt is not computed to its end."""
        drawing = [row.request for row in batch.rows if row.needs_logits]
        drawn = iter(self._sampler.draw(logits, drawing) if drawing else [])
        return [next(drawn) if row.needs_logits else Drawn([], []) for row in batch.rows]

    def _complete(self, row: Row, drawn: Drawn, now: float) -> Delta:
        """Take new tokens one by one until one of them ends the answer."""
        request, text, taken = row.request, "", 0
        answer = self._texts[request.request_id]
        reason: FinishReason | None = None
        for token in drawn.token_ids:
            taken += 1
            reason = self._ends(request, token, request.output_tokens + taken)
            if reason != "stop":
                text += answer.push(token)
            if answer.is_stopped:
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
        return Delta(request, text, drawn.token_ids[:taken], drawn.logprobs[:taken], reason)

    def _draft(self, request: Request, proposed: int, accepted: int) -> None:
        """Propose tokens for the next step to verify."""
        drafter = self._drafters.get(request.request_id)
        if drafter is None:
            return
        drafter.learn(proposed, accepted, len(request.token_ids))
        self.drafted_tokens += proposed
        self.accepted_tokens += accepted
        room = min(request.params.max_tokens - request.output_tokens, self._context_window - len(request.token_ids)) - 1
        request.draft_token_ids = drafter.propose(request.token_ids)[: max(0, room)]

    def _ends(self, request: Request, token: int, output_tokens: int) -> FinishReason | None:
        params = request.params
        is_end = token in params.stop_token_ids and output_tokens > params.min_tokens
        if is_end:
            return "stop"
        is_full = request.prompt_tokens + output_tokens >= self._context_window
        return "length" if output_tokens >= params.max_tokens or is_full else None

    def _fail(self, request: Request, message: str) -> Delta:
        request.finish_reason = "error"
        self._forget(request)
        return Delta(request, finish_reason="error", error=message)

    def _forget(self, request: Request) -> None:
        self.scheduler.remove(request)
        self._sampler.forget(request.request_id)
        self._texts.pop(request.request_id, None)
        self._drafters.pop(request.request_id, None)
