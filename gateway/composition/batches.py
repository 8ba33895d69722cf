"""Composition root: what works on batches."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from gateway.access.keys import KeyRecord, require_model_access
from gateway.batches.asking import Asking
from gateway.batches.bounds import BatchBounds
from gateway.batches.run import BatchRun
from gateway.batches.runner import BatchRunner
from gateway.batches.values import MESSAGES, Batch, BatchStore, FileStore
from gateway.batches.waiting import Waiting
from gateway.clock import PatientClock
from gateway.config.settings import Settings
from gateway.errors import BreakevenError
from gateway.openai_errors import body_of, messages_body_of, status_of
from gateway.pipeline import Pipeline
from gateway.request.run import Caller, Incoming

MEGABYTE = 1 << 20


def bounds_of(settings: Settings) -> BatchBounds:
    """The limits in breakeven.yaml."""
    said = settings.batches
    return BatchBounds(
        at_once=said.at_once,
        leave_free_share=said.leave_free_share,
        most_lines=said.max_requests,
        most_line_bytes=settings.server.max_body_megabytes * MEGABYTE,
        most_file_bytes=said.max_file_megabytes * MEGABYTE,
        most_stored_bytes=said.max_stored_megabytes * MEGABYTE,
        keep_days=said.keep_days,
    )


class Stores(Protocol):
    """Where files and batches are stored."""

    @property
    def files(self) -> FileStore: ...
    @property
    def batches(self) -> BatchStore: ...


def open_batches(
    pipeline: Pipeline,
    stores: Stores,
    bounds: BatchBounds,
    catch_up: Callable[[], Awaitable[bool]],
    *,
    name: str,
    clock: PatientClock,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> BatchRunner:
    """The batch runner of this process. `name` is unique among users of the database. `catch_up` loads the keys created
    before the call. Deadlines and key expiry use `clock`, as both are irreversible."""

    def key_of(key_id: str) -> KeyRecord:
        key = pipeline.keys.of_id(key_id, clock())
        require_model_access(key)
        return key

    async def answer(incoming: Incoming, caller: Caller, key: KeyRecord) -> None:
        async with pipeline.admission.staying(key.id, team=key.team):
            await pipeline.answer(incoming, caller, key)

    asking = Asking(answer, key_of, _refusal, asyncio.Semaphore(bounds.at_once), sleep)
    waiting = Waiting(
        pipeline.decide,
        lambda: pipeline.snapshot,
        key_of,
        pipeline.upstreams.slots,
        leave_free_share=bounds.leave_free_share,
        monotonic=time.monotonic,
    )

    def open_run(batch: Batch) -> BatchRun:
        return BatchRun(
            batch,
            stores.files,
            stores.batches,
            runner=name,
            ask=asking.ask,
            is_asking=asking.is_asking,
            awaits=waiting.should_wait,
            now_us=clock,
            monotonic=time.monotonic,
            most_at_once=bounds.at_once,
            most_lines=bounds.most_lines,
            most_line_bytes=bounds.most_line_bytes,
            sleep=sleep,
        )

    return BatchRunner(stores.batches, open_run, catch_up, name=name, sleep=sleep)


def _refusal(error: BreakevenError, endpoint: str, request_id: str) -> tuple[int, bytes]:
    return status_of(error), messages_body_of(error, request_id) if endpoint == MESSAGES else body_of(error)
