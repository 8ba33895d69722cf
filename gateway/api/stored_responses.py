"""Responses stored by the gateway or a provider: fetched, listed, cancelled and deleted. Nothing is booked."""
# pyright: reportUnusedFunction=false

from typing import Annotated
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response

from backends.errors import BackendError, UpstreamRejected
from backends.formats.json_objects import decode_object
from backends.formats.responses import as_shown
from backends.protocol import KeepsResponses
from backends.response_names import ResponseNames
from gateway.access.keys import KeyRecord
from gateway.api.callers_key import key_of_caller
from gateway.api.kept_responses import ask_kept_response, stream_kept_response
from gateway.api.resumed_events import Readers, ResumedEvents
from gateway.errors import InvalidRequest, NotFound, UpstreamFailed
from gateway.kept_answers.resumed_stream import NO_EVENTS
from gateway.ledger.entry import tenant_of
from gateway.pipeline import Pipeline
from gateway.request.answer_parts import rejection

NOT_FOUND = 404
NO_RESPONSES = ("compact", "input_tokens")
"""Other endpoints of OpenAI's API at the place of a response id."""
OF_STREAMS = ("stream", "starting_after")
"""No provider is asked for a stream: none keeps events, since none writes in the background for us."""
BAD_GATEWAY = 502
ResponseId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,512}$")]


def build_stored_responses_router(pipeline: Pipeline) -> APIRouter:
    """Asks the gateway's own store, then the backends of the models the key may use, until one knows the response."""
    router, readers = APIRouter(tags=["models"]), Readers()

    @router.get("/v1/responses/{response_id}")
    async def retrieve(
        response_id: ResponseId,
        request: Request,
        stream: bool = False,
        starting_after: Annotated[int | None, Query(ge=0)] = None,
    ) -> Response:
        """A stored response. It is stored by its provider or, for models called in another format, by the gateway. With
        `stream`, the events of one that was created with `background` and `stream`, after the one of that number."""
        if stream:
            last = -1 if starting_after is None else starting_after
            return await _resume(pipeline, readers, request, response_id, last)
        return await _ask(pipeline, request, response_id)

    @router.delete("/v1/responses/{response_id}")
    async def delete(response_id: ResponseId, request: Request) -> Response:
        """Delete a stored response."""
        return await _ask(pipeline, request, response_id)

    @router.post("/v1/responses/{response_id}/cancel")
    async def cancel(response_id: ResponseId, request: Request) -> Response:
        """Cancel a response that is being written in the background."""
        return await _ask(pipeline, request, response_id, "/cancel")

    @router.get("/v1/responses/{response_id}/input_items")
    async def input_items(response_id: ResponseId, request: Request) -> Response:
        """The input items of a stored response."""
        return await _ask(pipeline, request, response_id, "/input_items")

    return router


async def _resume(pipeline: Pipeline, readers: Readers, request: Request, name: str, last: int) -> Response:
    key = await key_of_caller(pipeline, request)
    tenant = tenant_of(key.team, key.id)
    readers.require_place(tenant)
    if (kept := pipeline.kept_responses) is not None:
        events = await stream_kept_response(kept, tenant, name, last)
        if events is not None:
            return ResumedEvents(events, readers, tenant)
    await _ask(pipeline, request, name)  # raises if nobody has it
    raise InvalidRequest(NO_EVENTS, param="stream")


async def _ask(pipeline: Pipeline, request: Request, name: str, what: str = "") -> Response:
    if name in NO_RESPONSES:
        raise HTTPException(NOT_FOUND)
    key = await key_of_caller(pipeline, request)
    asked = [one for one in parse_qsl(request.url.query, keep_blank_values=True) if one[0] not in OF_STREAMS]
    if pipeline.kept_responses is not None:
        tenant, what_for = tenant_of(key.team, key.id), f"{request.method} {what}".strip()
        kept = await ask_kept_response(pipeline.kept_responses, tenant, name, what_for, dict(asked))
        if kept is not None:
            return Response(kept, media_type="application/json")
    names = ResponseNames(pipeline.keys.response_secret(key.team or ""))  # a team's name is never empty
    named = names.inward(name)
    if named is None:
        raise _not_found()
    path = f"{named.own}{what}" + (f"?{urlencode(asked)}" if asked else "")
    body = await _stored(_keepers(pipeline, key, named.backend), request.method, path)
    if named.backend is not None:
        body = as_shown(body, decode_object(body) or {}, names, backend=named.backend)
    return Response(body, media_type="application/json")


def _keepers(pipeline: Pipeline, key: KeyRecord, backend: str | None) -> list[KeepsResponses]:
    """The backends of the models that the key may use; only `backend` if the response's id names one."""
    candidates = pipeline.snapshot.candidates.values()
    usable = {one.backend for one in candidates if key.allowed_models is None or one.name in key.allowed_models}
    asked = [pipeline.backends[one] for one in sorted(usable) if backend in (None, one)]
    return [one for one in asked if isinstance(one, KeepsResponses)]


async def _stored(keepers: list[KeepsResponses], method: str, path: str) -> bytes:
    """The answer of the first that knows the response. Raises RequestError."""
    failure: BackendError | None = None
    for keeper in keepers:
        try:
            body = await keeper.stored(method, path)
        except UpstreamRejected as error:
            if error.status != NOT_FOUND:
                raise rejection(error) from error
        except BackendError as error:
            failure = error
        else:
            if body is not None:
                return body
    if failure is not None:
        raise UpstreamFailed(f"The response cannot be fetched: {failure.message}.", status=BAD_GATEWAY) from failure
    raise _not_found()


def _not_found() -> NotFound:
    return NotFound(
        "This key's team has no such response: neither this gateway nor a provider whose models the key may use stores "
        "it, or not any more. With store: false, nobody does.",
        param="response_id",
        code="not_found",
    )
