"""One `response.create` of a WebSocket: what it asks for, the POST it becomes, and the messages that answer it. Knows
neither the connection nor the token path."""

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.types import Message, Scope

from backends.endpoints.responses_items import ResponseHead
from backends.formats.json_objects import NOT_JSON, Fields, decode_object, text_of
from backends.formats.json_splice import NotAnObject, splice
from backends.http.sse import SseParser
from backends.usage import Usage
from gateway.errors import BreakevenError, InvalidRequest
from gateway.ids import new_request_id
from gateway.kept_answers.socket_turns import Asked, SocketTurn
from gateway.openai_errors import body_of, headers_of, status_of
from gateway.process.patient_protocol import CONNECTION
from gateway.request.many_values import require_bearable

CREATE: Final = "response.create"
LANE: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_NOT_POSTED: Final = dict.fromkeys(("type", "stream_id", "generate"))
_OF_HANDSHAKE: Final = frozenset(
    {
        *(b"connection", b"upgrade", b"content-type", b"content-length", b"content-encoding", b"transfer-encoding"),
        *(b"expect", b"idempotency-key"),  # one key for every response would answer all of them with the first
    }
)
_ENDS: Final = (b"response.completed", b"response.incomplete", b"response.failed", b'"error"')
_CONTINUED: Final = ("response.completed", "response.incomplete")
_ENDINGS: Final = (*_CONTINUED, "response.failed", "error")
_BROKEN: Final[Message] = {"status": HTTPStatus.BAD_GATEWAY.value, "headers": []}
_DONE: Final = b"[DONE]"


class Event(Asked, frozen=True):
    """What a client sends. Its other fields are the request's, and stay in `body`."""

    type: object = None
    stream_id: object = msgspec.UNSET
    generate: object = None


class Create(msgspec.Struct, frozen=True):
    """`lane` is its `stream_id`."""

    lane: str | None
    asked: Asked
    body: bytes
    is_warm_up: bool


class _Ending(msgspec.Struct):
    type: str
    response: msgspec.Raw = msgspec.Raw(b"null")


_EVENT: Final = msgspec.json.Decoder(Event)
_ENDING: Final = msgspec.json.Decoder(_Ending)


def parse_create(body: bytes) -> Create:
    """Raises InvalidRequest."""
    require_bearable(body)
    try:
        event = _EVENT.decode(body)
    except NOT_JSON as error:
        raise InvalidRequest(f"The message is not valid JSON: {error}.", code="invalid_json") from error
    if event.type != CREATE:
        raise InvalidRequest(f"type: send {CREATE}; nothing else is known here.", param="type", code="unknown_event")
    lane = None if event.stream_id is msgspec.UNSET else event.stream_id
    if lane is not None and not (isinstance(lane, str) and LANE.fullmatch(lane)):
        raise InvalidRequest(
            "stream_id: must have 1 to 256 letters, digits, underscores, hyphens and periods; or leave it out.",
            param="stream_id",
            code="invalid_stream_id",
        )
    return Create(lane, event, body, event.generate is False)


def posted_body(create: Create, whole: SocketTurn | None) -> bytes:
    """The body of the POST; `whole` has the items in place of `previous_response_id`, if that was remembered here.
    Raises InvalidRequest."""
    edits: dict[str, bytes | None] = {**_NOT_POSTED, "stream": b"true"}
    if whole is not None:
        edits["input"] = whole.items
        edits["previous_response_id"] = None if whole.previous is None else msgspec.json.encode(whole.previous)
    try:
        return splice(create.body, edits)
    except NotAnObject as error:
        raise InvalidRequest(f"The message is not valid: {error}.", code="invalid_json") from error


class Post:
    """A POST as an ASGI application sees it. `tell` gets each message of its answer; `ended` before the last of them
    the response, or None if there is none that can be continued. Those in `leaving` are told when the client leaves.

    A stream that breaks off ends with `error` and `response.failed`, for clients that know only one of them. Here the
    second would be taken for the answer to the next request: `error` comes alone, with the status that Codex needs.
    """

    def __init__(
        self,
        handshake: Scope,
        body: bytes,
        lane: str | None,
        tell: Callable[[bytes], Awaitable[None]],
        ended: Callable[[bytes | None], None],
        leaving: set[Callable[[], None]],
        is_gone: Callable[[], bool],
    ) -> None:
        self._body = body
        self._lane = lane
        self._tell = tell
        self._ended = ended
        self._is_gone = is_gone
        self._start: Message = {}
        self._refusal = b""
        self._events = SseParser()
        self._has_ended = False
        headers = [
            (name, value)
            for name, value in handshake["headers"]
            if name not in _OF_HANDSHAKE and not name.startswith(b"sec-websocket-")
        ]
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        self.scope: Scope = {
            **handshake,
            "type": "http",
            "method": "POST",
            "scheme": "https" if handshake["scheme"] == "wss" else "http",
            "headers": headers,
            "extensions": {CONNECTION: {"listeners": leaving, "is_whole": True}},
        }
        del self.scope["subprotocols"]

    async def receive(self) -> Message:
        if self._is_gone():
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        elif self._start["status"] != 200:
            self._refusal += message.get("body", b"")
            if not message.get("more_body", False):
                self._ended(None)
                await self._tell(_refused(self._start, self._refusal, self._lane))
        else:
            for data in self._events.receive(message.get("body", b"")):
                if data != _DONE and not self._has_ended:
                    await self._tell(self._message_of(data))

    def _message_of(self, data: bytes) -> bytes:
        kind, response = _ending_of(data)
        self._has_ended = kind in _ENDINGS
        if self._has_ended:
            self._ended(response if kind in _CONTINUED else None)
        return _refused(_BROKEN, data, self._lane) if kind == "error" else in_lane(data, self._lane)


def _ending_of(data: bytes) -> tuple[str, bytes]:
    """The type of an event and its response; without type if it ends nothing."""
    if not any(mark in data for mark in _ENDS):
        return "", b""
    try:
        event = _ENDING.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):  # its provider's; the client gets it as it is
        return "", b""
    return event.type, bytes(event.response)


def in_lane(data: bytes, lane: str | None) -> bytes:
    return data if lane is None else b'{"stream_id":"%b",%b' % (lane.encode(), data.lstrip()[1:])


def error_message(error: BreakevenError, lane: str | None = None) -> bytes:
    """As the same error of a POST would be."""
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers_of(error).items()]
    headers.append((b"x-request-id", (error.request_id or new_request_id()).encode()))
    return _refused({"status": status_of(error), "headers": headers}, body_of(error), lane)


def _refused(start: Mapping[str, Any], body: bytes, lane: str | None) -> bytes:
    found = decode_object(body) or {}
    error = found.get("error")
    if not isinstance(error, dict):  # a provider's own
        text = found.get("message")
        error = {"message": text if isinstance(text, str) else body.decode("utf-8", "replace")}
    named = {"type": "invalid_request_error", **error}
    headers = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in start["headers"]
        if not name.startswith(b"content-")
    }
    told = {
        "type": "error",
        "status": start["status"],
        "error": {**named, "code": named.get("code") or named["type"]},  # Open Responses wants one always
        "headers": headers,
    }
    return in_lane(msgspec.json.encode(told), lane)


def warm_response(create: Create) -> tuple[bytes, list[bytes]]:
    """A response without output, and the messages with it: no model is asked, and nothing is booked."""
    asked: Fields = decode_object(create.body) or {}
    for name in (*_NOT_POSTED, "input"):
        asked.pop(name, None)
    previous = text_of(asked, "previous_response_id")
    head = ResponseHead(f"resp_{new_request_id()}", int(time.time()), asked, previous)
    model = text_of(asked, "model") or ""
    begun = head.document(model, [], "in_progress", None)
    finished = head.finished(model, [], "stop", Usage(), at=head.created_at)
    kinds = (("response.created", begun), ("response.in_progress", begun), ("response.completed", finished))
    events = [
        msgspec.json.encode({"type": kind, "sequence_number": number, "response": response})
        for number, (kind, response) in enumerate(kinds)
    ]
    return msgspec.json.encode(finished), [in_lane(event, create.lane) for event in events]
