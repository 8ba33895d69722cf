"""The engine over HTTP: OpenAI's endpoints, health and metrics. The only place that chooses HTTP statuses."""

import asyncio
import time
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from local_engine.assembly import Engine
from local_engine.async_engine import Admission, AsyncEngine
from local_engine.encoder import SentenceEncoder
from local_engine.errors import EngineDraining, EngineError, InvalidRequest, QueueFull
from local_engine.sampling.sampling_params import Constraint
from local_engine.server.answer_stream import events, whole
from local_engine.server.chat import Model, Prepared, prepare_chat, prepare_completion
from local_engine.server.embeddings_endpoint import answer_embeddings
from local_engine.server.long_bodies import LongBodies
from local_engine.server.openai_answers import AnswerWire, error_body
from local_engine.server.tokens_endpoint import detokenized, tokenized, tokenizer_info

T = TypeVar("T")
# Parsing this much takes a third of a second, blocking other threads; 131,072 tokens are one megabyte.
MAX_BODY_BYTES = 16 * 1024 * 1024
# Longer bodies are processed in a thread: tokenizing a megabyte takes a second or two, and would delay everyone else.
READ_AT_ONCE_BYTES = 16 * 1024
# Rendering a chat template waits for another process.
RENDERING = (prepare_chat, tokenized)
NOT_SERVED = (
    "{path} is not served; the engine answers /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/models, "
    "/tokenize, /detokenize, /tokenizer_info, /health and /metrics."
)


@dataclass(frozen=True, slots=True)
class Served:
    """What the endpoints need."""

    engine: AsyncEngine
    model: Model
    model_name: str
    created: int
    encoder: SentenceEncoder | None
    long_bodies: LongBodies
    # Separate, so that a slow template delays no text completion.
    chats: LongBodies
    # Separate, so that no long prompt waits for a grammar.
    long_constraints: LongBodies
    # Separate too, and finished while the engine drains, as answers are.
    embeddings: LongBodies


def build_app(
    engine: AsyncEngine, parts: Engine, *, model_name: str, encoder: SentenceEncoder | None = None
) -> Starlette:
    """The ASGI application; the caller starts and stops the engine."""
    model = Model(parts.tokenizer, parts.constraints, engine.context_window, parts.model.vocabulary_size)
    long_bodies, chats, long_constraints = (LongBodies(engine.draining) for _ in range(3))
    embeddings = LongBodies(engine.abandoned)
    served = Served(
        engine, model, model_name, int(time.time()), encoder, long_bodies, chats, long_constraints, embeddings
    )

    def bound(
        endpoint: Callable[[Served, HttpRequest], Awaitable[Response]],
    ) -> Callable[[HttpRequest], Awaitable[Response]]:
        async def handle(request: HttpRequest) -> Response:
            try:
                return await endpoint(served, request)
            except EngineError as error:
                return error_response(error)
            except ClientDisconnect:
                return Response(status_code=499)

        return handle

    return Starlette(
        routes=[
            Route("/v1/chat/completions", bound(_chat), methods=["POST"]),
            Route("/v1/completions", bound(_completions), methods=["POST"]),
            Route("/v1/embeddings", bound(_embeddings), methods=["POST"]),
            Route("/tokenize", bound(_tokenize), methods=["POST"]),
            Route("/detokenize", bound(_detokenize), methods=["POST"]),
            Route("/tokenizer_info", bound(_tokenizer_info), methods=["GET"]),
            Route("/v1/models", bound(_models), methods=["GET"]),
            Route("/v1/models/{model:path}", bound(_model), methods=["GET"]),
            Route("/health", bound(_health), methods=["GET"]),
            Route("/metrics", bound(_metrics), methods=["GET"]),
        ],
        exception_handlers={HTTPException: _http_error, Exception: _unforeseen},
    )


def error_response(error: EngineError) -> Response:
    """Chooses the status of an error before the first byte."""
    message = str(error)
    if isinstance(error, InvalidRequest):
        body = error_body(message, kind="invalid_request_error", parameter=error.parameter, code=error.code)
        return json_response(body, status=400)
    if isinstance(error, QueueFull):
        body = error_body(message, kind="rate_limit_error", code="engine_queue_full")
        return json_response(body, status=429, headers={"retry-after": str(round(error.retry_after_seconds))})
    if isinstance(error, EngineDraining):
        body = error_body(message, kind="server_error", code="engine_draining")
        return json_response(body, status=503, headers={"retry-after": "1"})
    return json_response(error_body(message, kind="server_error", code="engine_error"), status=500)


def json_response(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return encoded_response(msgspec.json.encode(body), status=status, headers=headers)


def encoded_response(body: bytes, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A body that is JSON already."""
    return Response(body, status_code=status, headers=headers, media_type="application/json")


async def _http_error(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = NOT_SERVED.format(path=http.url.path) if error.status_code == 404 else error.detail
    body = error_body(message, kind="invalid_request_error")
    return json_response(body, status=error.status_code, headers=dict(error.headers or {}))


async def _unforeseen(_: HttpRequest, error: Exception) -> Response:
    """A fault of ours, in the format that clients parse; the server's outermost layer logs it."""
    del error
    message = "The engine failed on this request; its log says where."
    return json_response(error_body(message, kind="server_error", code="engine_error"), status=500)


async def _chat(served: Served, http: HttpRequest) -> Response:
    return await _answer(served, http, await _read(served, http, prepare_chat))


async def _completions(served: Served, http: HttpRequest) -> Response:
    return await _answer(served, http, await _read(served, http, prepare_completion))


async def _embeddings(served: Served, http: HttpRequest) -> Response:
    if served.encoder is None:
        message = "No embedding model is loaded; start the engine with --embedding-model."
        body = error_body(message, kind="invalid_request_error", parameter="model", code="model_not_found")
        return json_response(body, status=404)
    body = await _body(http)
    admission = served.engine.attend()
    try:
        answer = await served.embeddings.read(partial(answer_embeddings, served.encoder, body, served.model_name))
    finally:
        admission.release()
    return encoded_response(answer)


async def _tokenize(served: Served, http: HttpRequest) -> Response:
    return json_response(await _read(served, http, tokenized))


async def _tokenizer_info(served: Served, _: HttpRequest) -> Response:
    return json_response(tokenizer_info(served.model))


async def _detokenize(served: Served, http: HttpRequest) -> Response:
    return json_response(await _read(served, http, detokenized))


async def _read(served: Served, http: HttpRequest, read: Callable[[bytes, Model], T]) -> T:
    """The result of `read` on the body. Raises InvalidRequest if it is nested too deeply to process."""
    body = await _body(http)
    try:
        if len(body) > READ_AT_ONCE_BYTES:
            return await served.long_bodies.read(lambda: read(body, served.model))
        if read in RENDERING:
            return await served.chats.read(lambda: read(body, served.model))
        return read(body, served.model)
    except RecursionError as error:
        raise InvalidRequest("The body is nested too deeply.") from error


async def _body(http: HttpRequest) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in http.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise InvalidRequest(f"The body is larger than {MAX_BODY_BYTES} bytes.")
        parts.append(part)
    return b"".join(parts).removeprefix(BOM_UTF8)  # https://www.rfc-editor.org/rfc/rfc8259#section-8.1


async def _answer(served: Served, http: HttpRequest, prepared: Prepared) -> Response:
    if prepared.constraint is not None:
        await _check(served, prepared.constraint)
    parameter = "messages" if prepared.kind == "chat" else "prompt"
    admission = served.engine.admit(
        prepared.longest_prompt,
        prepared.answers,
        parameter,
        counted_by=parameter if len(prepared.prompts) > len(prepared.choices) else "n",
        room=1 if prepared.draws else 0,
        priority=prepared.priority,
    )
    wire = AnswerWire(prepared.kind, served.model_name, served.model.tokenizer, prepared.thinking)
    if prepared.is_stream:
        return await _streamed(served, http, admission, events(admission, prepared, wire))
    try:
        return encoded_response(await _unless_left(served, http, admission, whole(admission, prepared, wire)))
    finally:
        admission.release()


async def _streamed(served: Served, http: HttpRequest, admission: Admission, events: AsyncGenerator[bytes]) -> Response:
    """The response begins with the first event: until then the request may lose its places, which needs a status of its
    own."""

    async def first() -> bytes:
        return await anext(events)

    try:
        begun = await _unless_left(served, http, admission, first())
    except BaseException:
        admission.release()
        raise
    return AdmittedStream(admission, begun, events)


async def _check(served: Served, constraint: Constraint) -> None:
    """Compiles it off the event loop. A long one takes many seconds, so it must not occupy asyncio's threads."""
    check = partial(served.model.constraints.check, constraint)
    if len(constraint.source) <= READ_AT_ONCE_BYTES:
        await asyncio.to_thread(check)
    else:
        await served.long_constraints.read(check)


class AdmittedStream(StreamingResponse):
    """Server-sent events that release their places when sent, interrupted, or never begun."""

    def __init__(self, admission: Admission, first: bytes, rest: AsyncGenerator[bytes]) -> None:
        async def events() -> AsyncIterator[bytes]:
            yield first
            async for event in rest:
                yield event

        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(events(), media_type="text/event-stream", headers=headers)
        self._admission = admission
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._rest.aclose()
            self._admission.release()


async def _unless_left(
    served: Served, http: HttpRequest, admission: Admission, answer: Coroutine[Any, Any, Any]
) -> Any:
    """Awaits an answer, cancelling it if the client disconnects or its places are taken first."""
    work, gone = asyncio.create_task(answer), asyncio.create_task(_disconnected(http))
    displaced = asyncio.create_task(admission.displaced.wait())
    try:
        await asyncio.wait((work, gone, displaced), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect if gone.done() else served.engine.full(admission.priority, was_displaced=True)
        return await work
    finally:
        for task in (work, gone, displaced):
            task.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def _disconnected(http: HttpRequest) -> None:
    """Returns when the client has disconnected; call only after the body was read."""
    while (await http.receive())["type"] != "http.disconnect":
        pass


def _model_entry(served: Served) -> dict[str, Any]:
    return {
        "id": served.model_name,
        "object": "model",
        "created": served.created,
        "owned_by": "local",
        "root": served.model_name,
        "max_model_len": served.engine.context_window,
    }


def _model_entries(served: Served) -> list[dict[str, Any]]:
    entries = [_model_entry(served)]
    if (encoder := served.encoder) is not None:
        entries.append(entries[0] | {"id": encoder.name, "root": encoder.name, "max_model_len": encoder.context_window})
    return entries


async def _models(served: Served, _: HttpRequest) -> Response:
    return json_response({"object": "list", "data": _model_entries(served)})


async def _model(served: Served, http: HttpRequest) -> Response:
    wanted = str(http.path_params["model"])
    for entry in _model_entries(served):
        if entry["id"] == wanted:
            return json_response(entry)
    body = error_body(
        f"No model {wanted!r} here.", kind="invalid_request_error", parameter="model", code="model_not_found"
    )
    return json_response(body, status=404)


async def _health(served: Served, _: HttpRequest) -> Response:
    state = served.engine.state()
    body = {
        "status": state.status,
        "model": served.model_name,
        "context_window": served.engine.context_window,
        "max_concurrency": state.max_concurrency,
        "free_slots": state.free_slots,
        "running": state.running,
        "waiting": state.waiting,
        "queue_seconds": state.queue_seconds,
        "kv_blocks_total": state.kv_blocks_total,
        "kv_blocks_free": state.kv_blocks_free,
    }
    return json_response(body, status=200 if state.status == "ok" else 503)


async def _metrics(served: Served, _: HttpRequest) -> Response:
    state, metrics = served.engine.state(), served.engine.metrics
    metrics.running.set(state.running)
    metrics.waiting.set(state.waiting)
    metrics.free_slots.set(state.free_slots)
    metrics.kv_total.set(state.kv_blocks_total)
    metrics.kv_free.set(state.kv_blocks_free)
    return Response(metrics.render(), media_type="text/plain; version=0.0.4")
