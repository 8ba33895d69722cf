"""The HTTP application: the token path as raw ASGI, everything else under FastAPI."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, cast

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from backends.endpoints.content_errors import content_error_from
from backends.endpoints.messages_events import messages_error
from backends.protocol import COUNTS
from gateway import __version__
from gateway.api.addresses import GEMINI, advice, is_ollamas
from gateway.api.documentation import build_documentation_router
from gateway.api.gemini import BATCH, GeminiPath, is_googles
from gateway.api.gemini import ENDPOINTS as CONTENTS
from gateway.api.messages import ENDPOINTS as MESSAGES
from gateway.api.messages import MessagesPath
from gateway.api.openapi_hot import complete_document
from gateway.api.public import ANTHROPIC
from gateway.api.shedding import Load
from gateway.api.token_path import ENDPOINTS, TokenPath
from gateway.api.unpacking import Unpacker
from gateway.compaction import Compactions
from gateway.content_embeddings import ContentEmbeddings
from gateway.errors import BreakevenError, InvalidRequest, NotFound, RequestError
from gateway.ids import new_request_id
from gateway.kept_answers.background_responses import BackgroundResponses
from gateway.kept_answers.idempotency import Idempotency
from gateway.kept_answers.open_responses import OpenResponses
from gateway.openai_errors import body_of, headers_of, status_of
from gateway.pipeline import Pipeline
from gateway.token_counting import TokenCounter
from gateway.yaml_document import problem_of

log = logging.getLogger(__name__)
POSTED = ENDPOINTS.keys() | MESSAGES.keys() | CONTENTS.keys()
LISTED = {"/v1/models", "/v1/files", "/v1/batches", "/v1/messages/batches", "/v1/conversations"}
KNOWN = ENDPOINTS.keys() | MESSAGES.keys() | LISTED
RESPONSES = "/v1/responses"
COMPACT = "/v1/responses/compact"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
SEND_A_POST = "Send a POST; see /docs."
NO_SOCKET = (
    "No WebSocket was opened. /v1/responses has one, if proxies on the way pass on the headers Upgrade and Connection. "
    "Or send a POST, with `stream: true` for a stream of events."
)
SOCKET_KEY = "sec-websocket-key"
"""Proxies that drop the offer of a WebSocket pass this on."""


class Root:
    """Dispatches the hot endpoints by one dictionary lookup, and everything else to FastAPI.

    A trailing slash is ignored, and HEAD is treated as a GET whose body the server leaves out.
    """

    def __init__(
        self, pipeline: Pipeline, rest: ASGIApp, *, max_body_bytes: int, idempotency: Idempotency, load: Load
    ) -> None:
        unpacker = Unpacker(
            load, lambda given: pipeline.keys.authenticate(given, pipeline.now_us()), max_bytes=max_body_bytes
        )
        counting = TokenCounter(pipeline)
        self._hot: dict[str, TokenPath] = {}
        for kind, endpoints in ((TokenPath, ENDPOINTS), (MessagesPath, MESSAGES)):
            path, counted = (
                kind(answers, max_body_bytes=max_body_bytes, idempotency=idempotency, unpacker=unpacker)
                for answers in (pipeline, counting)
            )
            for place, operation in endpoints.items():
                self._hot[place] = counted if operation in COUNTS else path
        for place, operation in CONTENTS.items():
            embedding = ContentEmbeddings(pipeline, is_batch=place == BATCH)
            answers = counting if operation in COUNTS else embedding if operation == "embeddings" else pipeline
            self._hot[place] = GeminiPath(
                answers, max_body_bytes=max_body_bytes, idempotency=idempotency, unpacker=unpacker
            )
        self._hot[COMPACT] = TokenPath(
            Compactions(pipeline), max_body_bytes=max_body_bytes, idempotency=idempotency, unpacker=unpacker
        )
        if (kept := pipeline.kept_responses) is not None:
            background = BackgroundResponses(pipeline, kept, OpenResponses(kept))
            self._hot[RESPONSES] = TokenPath(
                background, max_body_bytes=max_body_bytes, idempotency=idempotency, unpacker=unpacker
            )
        self._rest = rest
        self.sockets: ASGIApp = rest
        """Serves WebSockets. Set once there is what their requests have to pass on their way here."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and (hot := self._hot.get(scope["path"])) is not None:
            await hot(scope, receive, send)
        elif scope["type"] == "http" and (meant := _as_meant(scope)) is not scope:
            await self(meant, receive, send)
        elif scope["type"] == "websocket":
            await self.sockets(scope, receive, send)
        else:
            await self._rest(scope, receive, send)


def _as_meant(scope: Scope) -> Scope:
    """The scope itself or a changed copy: the server keeps its own, in which HEAD stays HEAD."""
    path: str = scope["path"]
    if path.endswith("/") and path != "/":
        scope = {**scope, "path": path.rstrip("/") or "/"}
    return {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope


class _Documented(FastAPI):
    """Its OpenAPI document also has the model endpoints, and the errors as they really are."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = complete_document(super().openapi())
        return self.openapi_schema


def build_fastapi() -> FastAPI:
    """A FastAPI application that serves its documentation, with errors in the format of the API that was called."""
    app = _Documented(
        title="Breakeven",
        version=__version__,
        summary="A cost-aware LLM router and gateway with books that balance.",
        openapi_url=None,  # the router of the documentation has it
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # it would redirect to whatever host the caller's header names
    )
    handler = cast("Callable[[Request, Exception], Awaitable[Response]]", _our_error)
    app.add_exception_handler(BreakevenError, handler)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.include_router(build_documentation_router(app.openapi))
    return app


def _is_anthropics(request: Request) -> bool:
    """Whether an Anthropic client reads the answer: by the path, or by its header on a path that several share."""
    path = request.url.path
    is_shared = path.startswith(("/v1/models", "/v1/files"))
    return path.startswith("/v1/messages") or (is_shared and ANTHROPIC in request.headers)


def _refusal(request: Request, error: BreakevenError, status: int, headers: Mapping[str, str] | None) -> Response:
    """In the format of the API that was called, with a request id for support."""
    name, is_anthropics = new_request_id(), _is_anthropics(request)
    body = messages_error(status, str(error), request_id=name) if is_anthropics else body_of(error)
    if is_googles(request.scope):
        body = content_error_from(body_of(error), status, str(error), request_id=name)
    named = {**(headers or {}), "request-id" if is_anthropics else "x-request-id": name}
    return Response(body, status_code=status, headers=named, media_type="application/json")


async def _our_error(request: Request, error: BreakevenError) -> Response:
    if not isinstance(error, RequestError):  # the response refers to the log
        log.error("%s %s failed: %s", request.method, request.url.path, error)
    return _refusal(request, error, status_of(error), headers_of(error))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(refusal := error.__cause__, BreakevenError):  # raised while the body was read: FastAPI hides it
        return await _our_error(request, refusal)
    path: str = request.scope["path"]  # `request.url` would read a `?` in it as the beginning of a query
    if error.status_code == HTTPStatus.NOT_FOUND and path in POSTED:
        wants_socket = request.headers.get("upgrade", "").lower() == "websocket" or SOCKET_KEY in request.headers
        if wants_socket:  # after any other status Codex tries again first
            named = {"upgrade": "HTTP/1.1", "sec-websocket-version": "13"}
            error = HTTPException(HTTPStatus.UPGRADE_REQUIRED, NO_SOCKET, named)
        else:
            error = HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, SEND_A_POST, {"allow": "POST"})
    is_another_method = error.status_code == HTTPStatus.METHOD_NOT_ALLOWED and path not in POSTED
    is_anothers = is_another_method and is_googles(request.scope)  # a Gemini method, which is part of the path
    if error.status_code == HTTPStatus.NOT_FOUND or is_anothers:
        why = GEMINI if is_anothers else advice(path, KNOWN)
        nothing = NotFound(f"There is nothing at {path}; {why}.", code="not_found")
        if is_ollamas(path):
            return JSONResponse({"error": str(nothing)}, HTTPStatus.NOT_FOUND)
        return _refusal(request, nothing, HTTPStatus.NOT_FOUND, None)
    translated = RequestError(str(error.detail), code=HTTPStatus(error.status_code).name.lower())
    headers = {"allow": _methods_at(request)} if is_another_method else error.headers
    return _refusal(request, translated, error.status_code, headers)


def _methods_at(request: Request) -> str:
    """All methods served at this path: the router's own 405 lists only those of the first matching route."""

    def is_served(method: str) -> bool:
        scope = {**request.scope, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    served = filter(is_served, METHODS)
    return ", ".join("GET, HEAD" if method == "GET" else method for method in served)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        why = f"The body is not valid JSON: {first['ctx']['error']} at character {first['loc'][-1]}."
        return _refusal(request, InvalidRequest(why, code="invalid_json"), HTTPStatus.BAD_REQUEST, None)
    field = ".".join(str(part) for part in first["loc"][1:]) or None
    invalid = InvalidRequest(f"{field or 'body'}: {problem_of(first)}.", param=field)
    return _refusal(request, invalid, status_of(invalid), headers_of(invalid))
