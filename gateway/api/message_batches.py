"""`/v1/messages/batches`: Anthropic's batch API, stored and processed the same way as `/v1/batches`."""
# pyright: reportUnusedFunction=false

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from backends.endpoints.messages_events import messages_error
from backends.formats.json_objects import NOT_JSON, Fields, decode_object, on_one_line, part_of
from backends.protocol import VENDOR_HEADERS
from gateway.api.batches import BatchId, new_batch, require_room
from gateway.api.callers_key import key_of_caller, tenant_of_caller
from gateway.api.listed import NAME
from gateway.api.streamed import Streamed, begun
from gateway.api.token_path import parse_passed_on, parse_tags
from gateway.batches.bounds import BatchBounds
from gateway.batches.lines import EXPIRED_CODE, Lines
from gateway.batches.values import INPUT, MESSAGES, UNDER_WAY, Asked, Batch, BatchStore, FileStore, Page, Progress
from gateway.batches.values import StoredFile as File
from gateway.errors import InvalidRequest, NotFound
from gateway.ids import new_request_id
from gateway.instants import DAY_US, moment_of
from gateway.ledger.entry import tenant_of
from gateway.pipeline import Pipeline
from gateway.request.encodings import unreadable, without_byte_order_mark

PREFIX: Final = "msgbatch_"
PART_BYTES: Final = 1 << 20
MOST_ID: Final = 64
BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["requests"],
                    "properties": {
                        "requests": {
                            "type": "array",
                            "minItems": 1,
                            "items": {
                                "type": "object",
                                "required": ["custom_id", "params"],
                                "properties": {
                                    "custom_id": {"type": "string", "minLength": 1, "maxLength": MOST_ID},
                                    "params": {"type": "object"},
                                },
                            },
                        }
                    },
                }
            }
        },
    }
}
Named = Annotated[str | None, Query(pattern=NAME)]


class _Request(msgspec.Struct):
    custom_id: str
    params: msgspec.Raw


class _Requests(msgspec.Struct):
    requests: list[_Request]


class _Params(msgspec.Struct):
    model: str
    stream: bool | None = None


def build_message_batches_router(
    pipeline: Pipeline, files: FileStore, batches: BatchStore, bounds: BatchBounds, wake: Callable[[], None]
) -> APIRouter:
    """As `build_batches_router`, but the requests come in the body, and the results are one list."""
    router = APIRouter(prefix="/v1/messages/batches", tags=["batches"])

    async def found(request: Request, batch_id: str) -> Batch:
        owner = await tenant_of_caller(pipeline, request)
        batch = await batches.get(owner, batch_id) if batch_id.startswith(PREFIX) else None
        if batch is None:
            raise _not_found()
        return batch

    @router.post("", openapi_extra=BODY)
    async def create(request: Request) -> dict[str, Any]:
        """Create a batch (Anthropic's API). Its requests are sent when there is capacity, within 24 hours."""
        key = await key_of_caller(pipeline, request)
        bounds.require_open()
        asked = _parse(without_byte_order_mark(await request.body()), bounds.most_lines)
        owner, now_us = tenant_of(key.team, key.id), pipeline.now_us()
        name, kept_until_us = f"{PREFIX}{new_request_id()}", now_us + bounds.keep_days * DAY_US
        size = sum(map(len, _parts(asked)))
        file = File(f"file-{new_request_id()}", owner, INPUT, f"{name}.jsonl", size, now_us, kept_until_us)
        headers = request.scope["headers"]
        passed_on = {header: text for header, text in parse_passed_on(headers).items() if header in VENDOR_HEADERS}
        wanted = Asked(MESSAGES, "24h", None, parse_tags(headers), passed_on)
        batch = new_batch(name, key, file.id, wanted, bounds, now_us=now_us, lasts_us=DAY_US)
        batch = msgspec.structs.replace(batch, progress=Progress(total=len(asked)))
        await files.write(file, _one_by_one(_parts(asked)), most_bytes=bounds.most_stored_bytes)
        is_made = False
        try:
            is_made = await batches.create(batch)
            require_room(is_made)
        finally:
            if not is_made:
                await files.delete(owner, file.id)  # nothing refers to it
        wake()
        return shown(batch, str(request.base_url))

    @router.get("")
    async def index(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=1000)] = 20,
        after_id: Named = None,
        before_id: Named = None,
    ) -> dict[str, Any]:
        """Batches, newest first. `has_more` concerns the direction of paging."""
        owner = await tenant_of_caller(pipeline, request)
        page = Page(limit, after_id) if before_id is None else Page(limit, before_id, is_oldest_first=True)
        rows, has_more = await batches.list(owner, page, prefix=PREFIX)
        listed = [shown(one, str(request.base_url)) for one in (rows if before_id is None else reversed(rows))]
        ids = [one["id"] for one in listed]
        first, last = (ids[0], ids[-1]) if ids else (None, None)
        return {"data": listed, "has_more": has_more, "first_id": first, "last_id": last}

    @router.get("/{batch_id}")
    async def retrieve(batch_id: BatchId, request: Request) -> dict[str, Any]:
        """The progress of a batch."""
        return shown(await found(request, batch_id), str(request.base_url))

    @router.post("/{batch_id}/cancel")
    async def cancel(batch_id: BatchId, request: Request) -> dict[str, Any]:
        """Cancel a batch: its remaining requests are not sent."""
        batch = await found(request, batch_id)
        now = await batches.cancel(batch.tenant, batch.id)
        return shown(now or batch, str(request.base_url))

    @router.delete("/{batch_id}")
    async def delete(batch_id: BatchId, request: Request) -> dict[str, Any]:
        """Delete a batch that has ended, and its results. 409 if it has not ended."""
        await batches.delete(await found(request, batch_id))
        return {"id": batch_id, "type": "message_batch_deleted"}

    @router.get("/{batch_id}/results", response_class=StreamingResponse)
    async def results(batch_id: BatchId, request: Request) -> StreamingResponse:
        """The result of every request, one per line, in no particular order."""
        batch = await found(request, batch_id)
        if batch.status in UNDER_WAY:
            raise NotFound(f"{batch.id} has not ended yet, so it has no results.", code="not_found")
        done = await batches.done_lines(batch)
        lines = _results(files, batch, done, most_line_bytes=bounds.most_line_bytes)
        return Streamed(await begun(lines), media_type="application/x-jsonl")

    return router


def shown(batch: Batch, base_url: str) -> dict[str, Any]:
    """In Anthropic's format, plus the cost of the answers."""
    said, times = batch.progress, batch.times_us
    is_over = batch.status not in UNDER_WAY
    ended = next((times[one] for one in ("completed", "expired", "cancelled", "failed") if one in times), None)
    left = said.total - said.completed - said.failed
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": "ended" if is_over else "canceling" if batch.status == "cancelling" else "in_progress",
        "request_counts": {
            "processing": 0 if is_over else said.total,
            "succeeded": said.completed if is_over else 0,
            "errored": said.failed - said.expired if is_over else 0,
            "canceled": left if is_over else 0,
            "expired": said.expired if is_over else 0,
        },
        "created_at": _moment(batch.created_at_us),
        "expires_at": _moment(batch.deadline_us),
        "ended_at": _moment(ended),
        "cancel_initiated_at": _moment(times.get("cancelling")),
        "archived_at": None,
        "results_url": f"{base_url}v1/messages/batches/{batch.id}/results" if is_over else None,
        "x_breakeven": said.costs(),
    }


def _parse(body: bytes, most: int) -> Sequence[_Request]:
    """Raises InvalidRequest. Unlike `/v1/batches`, this endpoint reports mistakes at once."""
    try:
        requests = msgspec.json.decode(body, type=_Requests).requests
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{error}: send requests, each with a custom_id and params.", param="requests") from error
    except NOT_JSON as error:
        raise unreadable(body, error) from error
    if not 1 <= len(requests) <= most:
        raise InvalidRequest(f"requests: a batch takes 1 to {most:,} of them.", param="requests")
    seen: set[str] = set()
    for place, one in enumerate(requests):
        _require_valid(one, f"requests.{place}")
        if one.custom_id in seen:
            raise InvalidRequest(f"requests.{place}.custom_id: {one.custom_id!r} is used twice.", param="requests")
        seen.add(one.custom_id)
    return requests


def _require_valid(one: _Request, where: str) -> None:
    if not 1 <= len(one.custom_id) <= MOST_ID:
        raise InvalidRequest(f"{where}.custom_id: must have 1 to {MOST_ID} characters.", param="requests")
    try:
        params = msgspec.json.decode(one.params, type=_Params)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{where}.params: {error}.", param="requests") from error
    except RecursionError as error:
        raise InvalidRequest(f"{where}.params: is nested too deeply.", param="requests") from error
    if params.stream:
        raise InvalidRequest(f"{where}.params: a batch cannot stream its answers; leave out stream.", param="requests")


async def _one_by_one(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def _parts(requests: Sequence[_Request]) -> Iterator[bytes]:
    """The requests as lines of a `/v1/batches` input file."""
    part = bytearray()
    for one in requests:
        body = msgspec.Raw(bytes(one.params).replace(b"\r", b" ").replace(b"\n", b" "))
        part += msgspec.json.encode({"custom_id": one.custom_id, "method": "POST", "url": MESSAGES, "body": body})
        part += b"\n"
        if len(part) >= PART_BYTES:
            yield bytes(part)
            part.clear()
    yield bytes(part)


async def _results(files: FileStore, batch: Batch, done: set[int], *, most_line_bytes: int) -> AsyncGenerator[bytes]:
    said = batch.progress
    written = ((batch.output_file_id, said.completed), (batch.error_file_id, said.failed))
    for file_id in [file_id for file_id, count in written if count]:
        async for part in files.read(file_id):
            lines = Lines(most_bytes=len(part))
            for _, text in (*lines.feed(part), *lines.end()):
                stored = decode_object(text) or {}
                yield _line(stored.get("custom_id"), _result(stored))
    if len(done) < said.total:
        lines = Lines(most_bytes=most_line_bytes + PART_BYTES)
        async for part in files.read(batch.input_file_id):
            for number, text in lines.feed(part):
                if number not in done:
                    yield _line((decode_object(text) or {}).get("custom_id"), {"type": "canceled"})


def _result(stored: Fields) -> Fields:
    """Anthropic's result for a stored output line."""
    if part_of(stored, "error").get("code") == EXPIRED_CODE:
        return {"type": "expired"}
    response = part_of(stored, "response")
    body = response.get("body")
    if response.get("status_code") == 200:
        return {"type": "succeeded", "message": body}
    error = body if isinstance(body, dict) else msgspec.json.decode(messages_error(500, str(body)))
    return {"type": "errored", "error": {"request_id": response.get("request_id"), **error}}


def _line(custom_id: object, result: Fields) -> bytes:
    return on_one_line(msgspec.json.encode({"custom_id": custom_id, "result": result})) + b"\n"


def _moment(at_us: int | None) -> str | None:
    return None if at_us is None else moment_of(at_us).isoformat().replace("+00:00", "Z")


def _not_found() -> NotFound:
    return NotFound("This key's team has no such batch; GET /v1/messages/batches lists them.", code="not_found")
