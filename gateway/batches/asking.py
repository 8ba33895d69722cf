"""Asks one line of a batch through the pipeline as its caller would, retrying failures that time may cure."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from gateway.access.keys import KeyRecord
from gateway.batches.lines import Line, answered
from gateway.batches.values import ENDPOINTS, Batch, LineResult
from gateway.errors import (
    BreakevenError,
    DatabaseDown,
    LedgerUnavailable,
    ModelsPaused,
    NoCapableModel,
    NoEligibleModel,
    Overloaded,
    RateLimitExceeded,
    RequestError,
    UpstreamFailed,
)
from gateway.ids import new_request_id
from gateway.money import parse_usd
from gateway.request.callers import KeepingAnswer
from gateway.request.run import Caller, Incoming

log = logging.getLogger(__name__)
BATCH_TAG: Final = "batch"
"""Tag of every batch request, so that rules and reports can tell them apart."""
LATER = (RateLimitExceeded, ModelsPaused, Overloaded, NoEligibleModel, LedgerUnavailable, DatabaseDown)
"""Nothing was asked upstream: retrying may help, however often."""
MOST_FAILURES: Final = 5
"""Upstream failures per line; each may have cost money."""
SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 60.0
SERVER_ERROR, TOO_MANY_REQUESTS = 500, 429
COST_HEADER, ID_HEADER, MODEL_HEADER = "x-breakeven-cost-usd", "x-breakeven-request-id", "x-breakeven-model"

Answer = Callable[[Incoming, Caller, KeyRecord], Awaitable[None]]
Refusal = Callable[[BreakevenError, str, str], tuple[int, bytes]]
"""Status and body that an endpoint returns over HTTP for an error, given the request id."""


class Asking(msgspec.Struct):
    """`key_of` raises RequestError if a batch's key may ask nothing any more. `slots` bounds the lines asked at a time;
    a line that waits for a retry holds none."""

    answer: Answer
    key_of: Callable[[str], KeyRecord]
    refusal: Refusal
    slots: asyncio.Semaphore
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _asking: set[asyncio.Task[Any] | None] = msgspec.field(default_factory=set)

    def is_asking(self, task: asyncio.Task[Any]) -> bool:
        """Whether the task's line is in the pipeline now. Otherwise it waits, and can be given up at no cost."""
        return task in self._asking

    async def ask(self, batch: Batch, line: Line) -> LineResult:
        """The line's result, however it went. If cancelled there is none, and whoever continues the batch asks it
        again."""
        waits = failures = 0
        while True:
            sink = KeepingAnswer()
            try:
                async with self.slots:
                    await self._answer(batch, line, sink)
            except BreakevenError as error:
                failures += isinstance(error, UpstreamFailed)
                if not _may_pass(error, failures):
                    return self._refused(batch, line, error)
                await self.sleep(_wait_seconds(error, waits))
                waits += 1
            except Exception as error:
                log.exception("line %d of %s failed", line.number, batch.id)
                return self._refused(batch, line, BreakevenError(type(error).__name__))
            else:
                return _result(line, sink)

    async def _answer(self, batch: Batch, line: Line, sink: KeepingAnswer) -> None:
        task = asyncio.current_task()
        self._asking.add(task)
        try:
            await self.answer(incoming(batch, line), sink, self.key_of(batch.key_id))
        finally:
            self._asking.discard(task)

    def _refused(self, batch: Batch, line: Line, error: BreakevenError) -> LineResult:
        request_id = error.request_id or new_request_id()
        status, body = self.refusal(error, batch.asked.endpoint, request_id)
        return answered(line, status, request_id, body, cost_pico_usd=None)


def incoming(batch: Batch, line: Line) -> Incoming:
    """The line as a request."""
    asked = batch.asked
    tags = (*asked.tags, BATCH_TAG)
    return Incoming(ENDPOINTS[asked.endpoint], None, line.body, tags=tags, headers=asked.headers, batch_id=batch.id)


def _may_pass(error: BreakevenError, failures: int) -> bool:
    if isinstance(error, UpstreamFailed):
        return failures < MOST_FAILURES and (error.status >= SERVER_ERROR or error.status == TOO_MANY_REQUESTS)
    return isinstance(error, LATER) and not isinstance(error, NoCapableModel)


def _wait_seconds(error: BreakevenError, waits: int) -> float:
    """As long as was asked for, otherwise longer each time."""
    asked = error.retry_after_seconds if isinstance(error, RequestError) else None
    seconds = SHORTEST_SECONDS * 2 ** min(waits, 10) if asked is None else asked
    return min(max(seconds, SHORTEST_SECONDS), LONGEST_SECONDS)


def _result(line: Line, sink: KeepingAnswer) -> LineResult:
    cost = sink.headers.get(COST_HEADER)
    return answered(
        line,
        sink.status,
        sink.headers[ID_HEADER],
        sink.payload,
        cost_pico_usd=None if cost is None else parse_usd(cost),
        model=sink.headers.get(MODEL_HEADER),
    )
