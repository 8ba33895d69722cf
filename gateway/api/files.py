"""`/v1/files`: input files of batches, uploaded by callers, and their output. The keys of a team share its files."""
# pyright: reportUnusedFunction=false

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import StreamingResponse
from starlette.datastructures import FormData, UploadFile

from gateway.api.callers_key import tenant_of_caller
from gateway.api.listed import NAME, After, Listed, listed
from gateway.api.public import ANTHROPIC
from gateway.api.streamed import Streamed, begun
from gateway.batches.bounds import BatchBounds
from gateway.batches.values import INPUT, FileStore, Page, StoredFile
from gateway.errors import BodyTooLarge, InvalidRequest, NotFound
from gateway.ids import new_request_id
from gateway.instants import DAY_US, SECOND_US
from gateway.pipeline import Pipeline
from gateway.request.field_checks import whole_number

PART_BYTES: Final = 1 << 20
LEAST_SECONDS, MOST_SECONDS = 3600, 2_592_000
MOST_NAME: Final = 255
UPLOAD: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "purpose"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "purpose": {"const": INPUT},
                        "expires_after[anchor]": {"const": "created_at"},
                        "expires_after[seconds]": {
                            "type": "integer",
                            "minimum": LEAST_SECONDS,
                            "maximum": MOST_SECONDS,
                        },
                    },
                }
            }
        },
    }
}
FileId = Annotated[str, Path(pattern=NAME)]
Purpose = Annotated[str | None, Query(pattern=NAME)]


def build_files_router(pipeline: Pipeline, files: FileStore, bounds: BatchBounds) -> APIRouter:
    """Uploads are written to the store in parts; an upload that breaks off leaves nothing behind."""
    router = APIRouter(prefix="/v1/files", tags=["batches"], dependencies=[Depends(_refuse_anthropics)])

    async def found(request: Request, file_id: str) -> StoredFile:
        file = await files.get(await tenant_of_caller(pipeline, request), file_id)
        if file is None:
            raise _not_found()
        return file

    @router.post("", openapi_extra=UPLOAD)
    async def upload(request: Request) -> dict[str, Any]:
        """Upload a JSONL file of requests, for `/v1/batches`."""
        owner = await tenant_of_caller(pipeline, request)
        bounds.require_open()
        form = await request.form(max_files=1, max_fields=10)
        try:
            file = _asked(form, owner, pipeline.now_us(), bounds)
            content = form["file"]
            assert isinstance(content, UploadFile)
            await files.write(file, _parts(content), most_bytes=bounds.most_stored_bytes)
            return shown(file)
        finally:
            await form.close()

    @router.get("")
    async def index(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
        after: After = None,
        order: Literal["asc", "desc"] = "desc",
        purpose: Purpose = None,
    ) -> Listed:
        """Files, newest first unless `order` is `asc`."""
        page = Page(limit, after, is_oldest_first=order == "asc")
        rows, has_more = await files.list(await tenant_of_caller(pipeline, request), page, purpose=purpose)
        return listed([shown(one) for one in rows], has_more=has_more)

    @router.get("/{file_id}")
    async def retrieve(file_id: FileId, request: Request) -> dict[str, Any]:
        """The metadata of a file."""
        return shown(await found(request, file_id))

    @router.delete("/{file_id}")
    async def delete(file_id: FileId, request: Request) -> dict[str, Any]:
        """Delete a file. 409 if a batch still reads it, or its results need it."""
        if not await files.delete(await tenant_of_caller(pipeline, request), file_id):
            raise _not_found()
        return {"id": file_id, "object": "file", "deleted": True}

    @router.get("/{file_id}/content", response_class=StreamingResponse)
    async def content(file_id: FileId, request: Request) -> StreamingResponse:
        """The content of a file."""
        file = await found(request, file_id)
        headers = {"content-length": str(file.size_bytes), "content-disposition": _named(file.name)}
        content = await begun(files.read(file.id))
        return Streamed(content, media_type="application/octet-stream", headers=headers)

    return router


def _named(name: str) -> str:
    """A `content-disposition`, in which a browser, or `curl -OJ`, finds the file's name."""
    quoted = quote(name)
    return f'attachment; filename="{name}"' if quoted == name else f"attachment; filename*=utf-8''{quoted}"


def shown(file: StoredFile) -> dict[str, Any]:
    """In OpenAI's format."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": file.created_at_us // SECOND_US,
        "expires_at": file.expires_at_us // SECOND_US,
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def _asked(form: FormData, tenant: str, now_us: int, bounds: BatchBounds) -> StoredFile:
    """The file's metadata from the upload form. Raises InvalidRequest or BodyTooLarge."""
    file, purpose = form.get("file"), form.get("purpose")
    if not isinstance(file, UploadFile):
        raise InvalidRequest("file: send the file's bytes in a part of this name.", param="file")
    if purpose != INPUT:
        raise InvalidRequest(
            f"purpose: only {INPUT!r} is accepted. Send images and documents in the request that asks about them.",
            param="purpose",
        )
    lasts_us = bounds.keep_days * DAY_US
    if (seconds := form.get("expires_after[seconds]")) is not None:
        lasts_us = min(lasts_us, _seconds(seconds) * SECOND_US)
    name = "".join(filter(str.isprintable, file.filename or ""))[:MOST_NAME] or "batch.jsonl"  # PostgreSQL takes no NUL
    size = file.size or 0
    if size > bounds.most_file_bytes:
        raise BodyTooLarge(
            f"The file is larger than {bounds.most_file_bytes:,} bytes. Send it in several, or raise "
            "batches.max_file_megabytes in breakeven.yaml.",
            code="file_too_large",
        )
    return StoredFile(f"file-{new_request_id()}", tenant, INPUT, name, size, now_us, now_us + lasts_us)


def _seconds(given: object) -> int:
    text = given if isinstance(given, str) else ""
    seconds = whole_number(text) or 0
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise InvalidRequest(
            f"expires_after: seconds must be from {LEAST_SECONDS:,} to {MOST_SECONDS:,}.", param="expires_after"
        )
    return seconds


async def _parts(file: UploadFile) -> AsyncIterator[bytes]:
    while part := await file.read(PART_BYTES):
        yield part


def _refuse_anthropics(request: Request) -> None:
    """Anthropic's clients find other files at this address. Raises NotFound."""
    if ANTHROPIC in request.headers:
        raise NotFound(
            "Anthropic's files are not offered here: send images and documents as base64 in the message about them, "
            "and batches to /v1/messages/batches."
        )


def _not_found() -> NotFound:
    return NotFound(
        "This key's team has no such file, or not any more; GET /v1/files lists them.",
        param="file_id",
        code="not_found",
    )
