"""The hot endpoints as raw ASGI: read the body, pass it to the pipeline, write the answer. Decides nothing."""

import asyncio
import logging
import re
from collections.abc import Coroutine, Mapping
from typing import Any, ClassVar, Final, Protocol

import msgspec
from starlette.types import Receive, Scope, Send

from backends.endpoints.cursor_chats import chat_from_cursor
from backends.errors import UpstreamRejected
from backends.formats.form_splice import NotAForm, is_form, splice_form, without_boundary
from backends.formats.json_objects import NOT_JSON
from backends.protocol import JSON, MEDIA, TRACE_HEADERS, VENDOR_HEADERS, Operation
from gateway.api.asgi_caller import AsgiCaller, while_connected
from gateway.api.idempotency_keys import KEY_HEADER, SendSink, as_send, idempotency_key
from gateway.api.under_way import going_on
from gateway.api.unpacking import Unpacker
from gateway.errors import BodyTooLarge, BreakevenError, InvalidRequest, Unauthenticated
from gateway.ids import new_request_id
from gateway.kept_answers.background_responses import is_in_background
from gateway.kept_answers.idempotency import Idempotency, Sink
from gateway.kept_answers.response_cache import DEFAULT_SECONDS, vendor_text
from gateway.openai_errors import body_of, headers_of, status_of
from gateway.pipeline import Caller, Incoming
from gateway.request.answer_parts import id_header
from gateway.request.encodings import without_byte_order_mark
from gateway.request.field_checks import whole_number
from gateway.request.many_values import require_bearable
from gateway.request.tag_bound import OTHER

log = logging.getLogger(__name__)
TAGS_HEADER = b"x-breakeven-tags"
RESERVED_TAGS = frozenset({"(none)", OTHER})
"""What reports say of requests without a tag, and of those with too many different ones."""
CACHE_HEADER = b"x-breakeven-cache"
ENCODING_HEADER = b"content-encoding"
PASSED_ON = frozenset(name.encode() for name in TRACE_HEADERS | VENDOR_HEADERS)
CACHE_WORDS = {"on": DEFAULT_SECONDS, "off": 0}
TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
"""https://www.w3.org/TR/trace-context/#traceparent-header; later versions may add fields."""
LONGEST_CACHE_SECONDS = 30 * 86_400
DEPLOYMENT: Final = "breakeven.deployment"
"""Scope key: the model that the path names."""
CURSOR: Final = "breakeven.cursor"
"""Scope key: the body is a chat as Cursor sends it."""
CONTENT_CALL: Final = "breakeven.content_call"
"""Scope key: a `ContentCall`, what the path and query of a Gemini call say besides the method."""
LITELLMS_KEY: Final = b"x-litellm-api-key"
MAX_TAGS = 16
MAX_TAG_LENGTH = 64

ENDPOINTS: dict[str, Operation] = {
    "/v1/chat/completions": "chat.completions",
    "/v1/completions": "completions",
    "/v1/embeddings": "embeddings",
    "/v1/responses": "responses",
    "/v1/responses/compact": "responses",
    "/v1/responses/input_tokens": "responses.input_tokens",
    "/v1/images/generations": "images.generations",
    "/v1/images/edits": "images.edits",
    "/v1/audio/speech": "audio.speech",
    "/v1/audio/transcriptions": "audio.transcriptions",
    "/v1/audio/translations": "audio.translations",
    "/v1/moderations": "moderations",
    "/v1/rerank": "rerank",
}


class Answers(Protocol):
    """The part of the pipeline that this file uses."""

    def answer(self, incoming: Incoming, caller: Caller) -> Coroutine[Any, Any, None]: ...


class _Gone(Exception):
    """The caller disconnected while its body was being read: nothing was accepted or must be booked."""


class TokenPath:
    """ASGI application for its `endpoints`."""

    endpoints: ClassVar[Mapping[str, Operation]] = ENDPOINTS

    def __init__(self, pipeline: Answers, *, max_body_bytes: int, idempotency: Idempotency, unpacker: Unpacker) -> None:
        self._pipeline = pipeline
        self._unpacker = unpacker
        self._max_body_bytes = max_body_bytes
        self._idempotency = idempotency

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        caller = self._caller(send, scope)
        held = 0
        try:
            given = dict(headers)  # most optional headers are absent: one lookup each tells
            tags = parse_tags(headers) if TAGS_HEADER in given else ()
            body = await read_body(given.get(b"content-length", b""), receive, self._max_body_bytes)
            credential = credential_in(given)
            if ENCODING_HEADER in given and (encoding := encoding_of(headers)) is not None:
                held = self._unpacker.hold(body, encoding, credential)
                body = await self._unpacker.unpack(body)
            body = without_byte_order_mark(body)
            operation = self.endpoints[scope["path"]]
            content_type = given.get(b"content-type", b"").decode("latin-1") if operation in MEDIA else JSON
            if DEPLOYMENT in scope:
                body = of_deployment(body, content_type, scope[DEPLOYMENT])
            if CURSOR in scope:
                body = of_cursor(body)
            asked = Incoming(
                operation,
                credential,
                body,
                tags,
                parse_cache_seconds(headers) if CACHE_HEADER in given else None,
                {} if PASSED_ON.isdisjoint(given) else parse_passed_on(headers),
                content_type,
            )
            if CONTENT_CALL in scope:
                asked = self._of_address(asked, scope)
            key = idempotency_key(headers) if KEY_HEADER in given else None
            if key is not None:
                work = self._serve_once(key, asked, caller, send, scope)
            elif is_in_background(asked):
                work = self._serve_outlasting(asked, caller, scope)
            else:
                work = self._pipeline.answer(asked, caller)
            await while_connected(work, caller, scope, receive)
        except _Gone:
            return
        except BreakevenError as error:
            request_id = error.request_id or new_request_id()
            if status_of(error) >= 500 and not isinstance(error, Unauthenticated):  # strangers must not fill the log
                log.warning("%s: %s (request %s)", type(error).__name__, error, request_id)
            if caller.is_started:
                raise
            named = headers_of(error) | {id_header(self.endpoints[scope["path"]]): request_id}
            await caller.start(status=status_of(error), content_type="application/json", headers=named)
            await caller.send(self._error(error, request_id), is_last=True)
        finally:
            caller.close()
            if held:
                self._unpacker.release(held)

    def _caller(self, send: Send, scope: Scope) -> AsgiCaller:
        return AsgiCaller(send)

    def _of_address(self, asked: Incoming, scope: Scope) -> Incoming:
        """With what the path says about the request; overridden where paths carry more than the endpoint."""
        return asked

    def _error(self, error: BreakevenError, request_id: str) -> bytes:
        return body_of(error)

    async def _serve_outlasting(self, asked: Incoming, caller: AsgiCaller, scope: Scope) -> None:
        """The call's place stays taken until the response is written, though its caller may have left."""
        with going_on(scope):
            await self._pipeline.answer(asked, caller)

    async def _until_answered(self, work: Coroutine[Any, Any, None], answered: asyncio.Event) -> None:
        """The work goes on after its caller has been answered."""
        task, waiting = asyncio.create_task(work), asyncio.ensure_future(answered.wait())
        self._idempotency.go_on(task)
        try:
            await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if task.done():
            await task

    async def _serve_once(self, key: str, asked: Incoming, caller: AsgiCaller, send: Send, scope: Scope) -> None:
        """Runs the pipeline for the first request with this key; `caller` is one of those waiting for its answer."""

        async def serve(shared: Sink) -> bool:
            answered = asyncio.Event()
            leader = self._caller(as_send(shared, answered), scope)
            try:
                work = self._serve_outlasting(asked, leader, scope)
                await (self._until_answered(work, answered) if is_in_background(asked) else work)
                return leader.is_whole
            finally:
                leader.close()

        place = f"{scope['path']}{scope.get(CONTENT_CALL, '')}".encode()
        body = without_boundary(asked.body, asked.content_type)
        content = (place, body, ",".join(asked.tags).encode(), vendor_text(asked.headers))
        sink = SendSink(send)
        try:
            await self._idempotency.answer(key, asked.credential, content, serve, sink)
        finally:
            caller.is_started = sink.is_started


def credential_of(headers: list[tuple[bytes, bytes]]) -> str | None:
    """As `credential_in`."""
    return credential_in(dict(headers))


def credential_in(found: Mapping[bytes, bytes]) -> str | None:
    """`Authorization`, or `x-api-key` as Anthropic's clients send it. As in LiteLLM, `x-litellm-api-key` takes
    precedence: its senders have something else in `Authorization`, such as a subscription's token."""
    value = found.get(LITELLMS_KEY) or found.get(b"authorization") or found.get(b"x-api-key")
    return value.decode("latin-1") if value else None


def of_deployment(body: bytes, content_type: str, name: str) -> bytes:
    """The JSON object or form with `name` as its model. Anything else is returned unchanged; the parser refuses it
    later. Raises InvalidRequest where there are too many values."""
    if is_form(content_type):
        try:
            return splice_form(body, content_type, {"model": name})
        except NotAForm:
            return body
    require_bearable(body)
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except NOT_JSON:
        return body
    return msgspec.json.encode(fields | {"model": name})


def of_cursor(body: bytes) -> bytes:
    """The chat that Cursor means. Raises InvalidRequest."""
    require_bearable(body)
    try:
        return chat_from_cursor(body)
    except UpstreamRejected as error:
        raise InvalidRequest(error.message) from error
    except RecursionError as error:
        raise InvalidRequest("The body is nested too deeply.") from error


def parse_tags(headers: list[tuple[bytes, bytes]]) -> tuple[str, ...]:
    """Comma-separated tags of a request. Raises InvalidRequest if there are too many, or one is too long or contains
    control characters, which would act on the terminal of whoever reads a report."""
    for name, value in headers:
        if name == TAGS_HEADER:
            tags = tuple(tag for part in value.decode("utf-8", "replace").split(",") if (tag := part.strip()))
            if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG_LENGTH for tag in tags):
                raise InvalidRequest(
                    f"x-breakeven-tags takes at most {MAX_TAGS} tags of {MAX_TAG_LENGTH} characters.",
                    param="x-breakeven-tags",
                )
            if not all(map(str.isprintable, tags)):
                raise InvalidRequest("x-breakeven-tags takes printable characters only.", param="x-breakeven-tags")
            if not RESERVED_TAGS.isdisjoint(tags):
                raise InvalidRequest(
                    "x-breakeven-tags takes no (none) or (other): reports call other requests so.",
                    param="x-breakeven-tags",
                )
            return tags
    return ()


def parse_passed_on(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """The caller's headers that go upstream. Raises InvalidRequest for a provider's header that cannot be forwarded.

    An invalid trace context is dropped, as the W3C requires; the next hop then starts a new trace.
    """
    found: dict[str, str] = {}
    for name, value in headers:
        if name in PASSED_ON:
            key, text = name.decode("ascii"), value.decode("latin-1")
            found[key] = f"{found[key]},{text}" if key in found else text
    for key in [key for key, text in found.items() if not (text.isascii() and text.isprintable())]:
        if key in VENDOR_HEADERS:
            raise InvalidRequest(f"{key}: must be printable ASCII.", param=key)
        del found[key]
    if "traceparent" not in found or not TRACEPARENT.fullmatch(found["traceparent"]):
        found.pop("traceparent", None)
        found.pop("tracestate", None)
    return found


def parse_cache_seconds(headers: list[tuple[bytes, bytes]]) -> int | None:
    """The caller's cache header: the greatest age in seconds of a cached answer, 0 for `off`."""
    for name, value in headers:
        if name == CACHE_HEADER:
            said = value.decode("latin-1").strip().lower()
            if said in CACHE_WORDS:
                return CACHE_WORDS[said]
            if (seconds := whole_number(said)) is not None and seconds <= LONGEST_CACHE_SECONDS:
                return seconds
            raise InvalidRequest(
                f"x-breakeven-cache takes on, off or a number of seconds up to {LONGEST_CACHE_SECONDS}.",
                param="x-breakeven-cache",
            )
    return None


def encoding_of(headers: list[tuple[bytes, bytes]]) -> bytes | None:
    """The body's compression, if any."""
    named = [value for name, value in headers if name == ENCODING_HEADER and value.lower() != b"identity"]
    return named[-1] if named else None


async def read_body(announced: bytes, receive: Receive, limit: int) -> bytes:
    """The whole body as it came.

    Raises BodyTooLarge as soon as the announced or the received size exceeds the limit.
    """
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts) if len(parts) > 1 else part


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The body is larger than {limit:,} bytes. Send less, or raise server.max_body_megabytes in breakeven.yaml.",
        code="body_too_large",
    )
