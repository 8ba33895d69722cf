"""`/v1/batches`: OpenAI's batch API. The keys of a team share its batches."""
# pyright: reportUnusedFunction=false

import re
from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from gateway.access.keys import KeyRecord
from gateway.api.callers_key import key_of_caller, known_first, tenant_of_caller
from gateway.api.listed import NAME, After, Listed, listed
from gateway.api.token_path import parse_tags
from gateway.batches.bounds import BatchBounds
from gateway.batches.values import ENDPOINTS, INPUT, MESSAGES, MOST_UNDER_WAY, Asked, Batch, BatchStore, FileStore, Page
from gateway.errors import InvalidRequest, NotFound, RateLimitExceeded
from gateway.ids import new_request_id
from gateway.instants import DAY_US, HOUR_US, SECOND_US
from gateway.ledger.entry import tenant_of
from gateway.pipeline import Pipeline

WINDOW: Final = re.compile(r"([1-9][0-9]{0,2})h")
MOST_HOURS: Final = 168
PREFIX: Final = "batch_"
RETRY_SECONDS: Final = 60.0
OFFERED: Final = tuple(one for one in ENDPOINTS if one != MESSAGES)
MOMENTS: Final = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
BatchId = Annotated[str, Path(pattern=NAME)]
Text = Annotated[str, Field(max_length=512)]


class NewBatch(BaseModel):
    """A new batch. `completion_window` is 24h, as at OpenAI, or another number of hours (1h to 168h)."""

    input_file_id: Text
    endpoint: Text
    completion_window: Text = "24h"
    metadata: Annotated[dict[Annotated[str, Field(max_length=64)], Text], Field(max_length=16)] | None = None


def build_batches_router(
    pipeline: Pipeline, files: FileStore, batches: BatchStore, bounds: BatchBounds, wake: Callable[[], None]
) -> APIRouter:
    """`wake` tells the batch runner that there is a new batch."""
    router = APIRouter(prefix="/v1/batches", tags=["batches"], dependencies=[known_first(pipeline)])

    @router.post("")
    async def create(asked: NewBatch, request: Request) -> dict[str, Any]:
        """Create a batch from an uploaded file. Its requests are sent when there is capacity, within the window."""
        key = await key_of_caller(pipeline, request)
        bounds.require_open()
        owner = tenant_of(key.team, key.id)
        file = await files.get(owner, asked.input_file_id)
        if file is None or file.purpose != INPUT:
            why = f"This key's team has no such file with the purpose {INPUT!r}: upload one to /v1/files."
            raise InvalidRequest(f"input_file_id: {why}", param="input_file_id", code="file_not_found")
        if asked.endpoint not in OFFERED:
            raise InvalidRequest(f"endpoint: must be one of {', '.join(OFFERED)}.", param="endpoint")
        wanted = Asked(asked.endpoint, asked.completion_window, asked.metadata, parse_tags(request.scope["headers"]))
        lasts_us = _hours(asked.completion_window) * HOUR_US
        batch = new_batch(
            f"{PREFIX}{new_request_id()}", key, file.id, wanted, bounds, now_us=pipeline.now_us(), lasts_us=lasts_us
        )
        require_room(await batches.create(batch))
        wake()
        return shown(batch)

    @router.get("")
    async def index(request: Request, limit: Annotated[int, Query(ge=1, le=100)] = 20, after: After = None) -> Listed:
        """Batches, newest first."""
        rows, has_more = await batches.list(
            await tenant_of_caller(pipeline, request), Page(limit, after), prefix=PREFIX
        )
        return listed([shown(one) for one in rows], has_more=has_more)

    @router.get("/{batch_id}")
    async def retrieve(batch_id: BatchId, request: Request) -> dict[str, Any]:
        """The progress of a batch, and the ids of its result files."""
        return _found(await batches.get(await tenant_of_caller(pipeline, request), _ours(batch_id)))

    @router.post("/{batch_id}/cancel")
    async def cancel(batch_id: BatchId, request: Request) -> dict[str, Any]:
        """Cancel a batch: its remaining requests are not sent. Finished answers stay in the output file."""
        return _found(await batches.cancel(await tenant_of_caller(pipeline, request), _ours(batch_id)))

    return router


def new_batch(
    name: str, key: KeyRecord, input_file_id: str, asked: Asked, bounds: BatchBounds, *, now_us: int, lasts_us: int
) -> Batch:
    return Batch(
        id=name,
        tenant=tenant_of(key.team, key.id),
        key_id=key.id,
        status="validating",
        created_at_us=now_us,
        deadline_us=now_us + lasts_us,
        keep_us=bounds.keep_days * DAY_US,
        input_file_id=input_file_id,
        output_file_id=f"file-{new_request_id()}",
        error_file_id=f"file-{new_request_id()}",
        asked=asked,
    )


def require_room(is_made: bool) -> None:
    """Raises RateLimitExceeded if the team has too many batches in progress."""
    if not is_made:
        raise RateLimitExceeded(
            f"This key's team has {MOST_UNDER_WAY} batches in progress: wait until one has ended, or cancel one.",
            retry_after_seconds=RETRY_SECONDS,
        )


def shown(batch: Batch) -> dict[str, Any]:
    """In OpenAI's format, plus the cost of the answers."""
    said, times = batch.progress, batch.times_us
    is_over = any(one in times for one in ("completed", "expired", "cancelled"))
    problems = [{"code": p.code, "message": p.message, "param": p.param, "line": p.line} for p in batch.problems]
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.asked.endpoint,
        "errors": {"object": "list", "data": problems} if problems else None,
        "input_file_id": batch.input_file_id,
        "completion_window": batch.asked.completion_window,
        "status": batch.status,
        "output_file_id": batch.output_file_id if is_over and said.completed else None,
        "error_file_id": batch.error_file_id if is_over and said.failed else None,
        "created_at": batch.created_at_us // SECOND_US,
        "expires_at": batch.deadline_us // SECOND_US,
        **{f"{one}_at": times[one] // SECOND_US if one in times else None for one in MOMENTS},
        "request_counts": {"total": said.total, "completed": said.completed, "failed": said.failed},
        "usage": {
            "input_tokens": said.tokens.input_tokens,
            "input_tokens_details": {"cached_tokens": said.tokens.cached_input_tokens},
            "output_tokens": said.tokens.output_tokens,
            "output_tokens_details": {"reasoning_tokens": said.tokens.reasoning_tokens},
            "total_tokens": said.tokens.input_tokens + said.tokens.output_tokens,
        },
        "metadata": batch.asked.metadata,
        "x_breakeven": said.costs(),
    }


def _found(batch: Batch | None) -> dict[str, Any]:
    if batch is None:
        raise _not_found()
    return shown(batch)


def _ours(batch_id: str) -> str:
    """Raises NotFound for a batch that was created through another API."""
    if not batch_id.startswith(PREFIX):
        raise _not_found()
    return batch_id


def _not_found() -> NotFound:
    return NotFound(
        "This key's team has no such batch; GET /v1/batches lists them.", param="batch_id", code="not_found"
    )


def _hours(window: str) -> int:
    found = WINDOW.fullmatch(window)
    if found is None or int(found[1]) > MOST_HOURS:
        raise InvalidRequest(
            f"completion_window: must be 24h, or another number of hours up to {MOST_HOURS}h.",
            param="completion_window",
        )
    return int(found[1])
