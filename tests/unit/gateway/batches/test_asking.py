"""One line of a batch: which failures are retried, after which wait, and the final result."""

import asyncio
import json
from typing import Any

import pytest

from gateway.access.keys import KeyRecord
from gateway.batches.asking import MOST_FAILURES, Asking
from gateway.batches.lines import Line
from gateway.errors import (
    BreakevenError,
    BudgetExhausted,
    DatabaseDown,
    InvalidRequest,
    LedgerUnavailable,
    ModelsPaused,
    NoCapableModel,
    NoEligibleModel,
    Overloaded,
    RateLimitExceeded,
    Unauthenticated,
    UpstreamFailed,
)
from gateway.openai_errors import body_of, status_of
from gateway.request.run import Caller, Incoming
from tests.unit.gateway.batches.builders import make_batch

KEY = KeyRecord("key-1", "test", "app")
LINE = Line(1, "mine", b'{"model":"auto"}')


class Pipeline:
    """Fails with the given errors, then answers."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.asked: list[tuple[Incoming, KeyRecord]] = []

    async def answer(self, incoming: Incoming, caller: Caller, key: KeyRecord) -> None:
        self.asked.append((incoming, key))
        if self.failures:
            raise self.failures.pop(0)
        headers = {"x-breakeven-request-id": "0123", "x-breakeven-cost-usd": "0.000000000042"}
        await caller.start(status=200, content_type="application/json", headers=headers)
        await caller.send(b'{"usage": {"prompt_tokens": 3}}', is_last=True)


def _refusal(error: BreakevenError, endpoint: str, request_id: str) -> tuple[int, bytes]:
    return status_of(error), body_of(error)


async def asked(pipeline: Pipeline, slots: asyncio.Semaphore | None = None) -> tuple[dict[str, Any], list[float], Any]:
    waited: list[float] = []
    free = slots or asyncio.Semaphore(1)

    async def sleep(seconds: float) -> None:
        assert not free.locked(), "who waits holds no slot"
        assert not asking.is_asking(task), "and may be given up"
        waited.append(seconds)

    async def answer(incoming: Incoming, caller: Caller, key: KeyRecord) -> None:
        assert asking.is_asking(task)
        await pipeline.answer(incoming, caller, key)

    asking = Asking(answer, lambda key_id: KEY, _refusal, free, sleep)
    task = asyncio.create_task(asking.ask(make_batch(), LINE))
    result = await task
    return json.loads(result.text), waited, result


async def test_an_answer_is_told_with_its_name_and_cost() -> None:
    pipeline = Pipeline()
    told, waited, result = await asked(pipeline)
    assert told["response"] == {"status_code": 200, "request_id": "0123", "body": {"usage": {"prompt_tokens": 3}}}
    assert (result.cost_pico_usd, result.tokens.input_tokens, waited) == (42, 3, [])
    [(incoming, key)] = pipeline.asked
    assert (incoming.operation, incoming.body, incoming.tags) == ("chat.completions", LINE.body, ("batch",))
    assert (incoming.credential, key) == (None, KEY)
    assert incoming.batch_id == make_batch().id, "so that the ledger knows what it was asked for"


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (RateLimitExceeded("slow down", retry_after_seconds=7), 7),
        (RateLimitExceeded("slow down", retry_after_seconds=0.1), 1),
        (RateLimitExceeded("slow down", retry_after_seconds=86_400), 60),
        (Overloaded("too much", retry_after_seconds=3), 3),
        (ModelsPaused("default", {"a": "paused"}), 1),
        (NoEligibleModel("default", {"a": "its backend is down"}), 1),
        (LedgerUnavailable("the disk is full"), 1),
        (DatabaseDown("away"), 1),
        (UpstreamFailed("down", status=503), 1),
        (UpstreamFailed("slow down", status=429, retry_after_seconds=9), 9),
    ],
)
async def test_what_time_can_mend_is_asked_again(error: BreakevenError, seconds: float) -> None:
    told, waited, _ = await asked(Pipeline(error))
    assert told["response"]["status_code"] == 200
    assert waited == [seconds]


async def test_waits_grow_up_to_a_minute() -> None:
    errors = [NoEligibleModel("default", {"a": "its backend is down"}) for _ in range(9)]
    _, waited, _ = await asked(Pipeline(*errors))
    assert waited == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidRequest("no"), 400),
        (Unauthenticated("revoked"), 401),
        (BudgetExhausted("spent"), 429),
        (NoCapableModel("default", {"a": "lacks tools"}), 400),
        (UpstreamFailed("bad", status=400), 400),
        (ValueError("a fault of ours"), 500),
    ],
)
async def test_what_it_cannot_is_told_at_once(error: Exception, status: int) -> None:
    told, waited, result = await asked(Pipeline(error))
    assert (told["response"]["status_code"], waited, result.is_error) == (status, [], True)
    assert told["response"]["request_id"]


async def test_upstreams_may_fail_so_often() -> None:
    pipeline = Pipeline(*[UpstreamFailed("down", status=502) for _ in range(MOST_FAILURES + 1)])
    told, waited, _ = await asked(pipeline)
    assert told["response"]["status_code"] == 502
    assert (len(pipeline.asked), len(waited)) == (MOST_FAILURES, MOST_FAILURES - 1)
