"""A request over a WebSocket and the POST that it becomes, without a server."""

import asyncio
import json
import logging
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.access.keys import KeyRecord
from gateway.api.shedding import Load
from gateway.api.socket_calls import Post, in_lane
from gateway.api.sockets import ResponseSockets, SocketLimits
from gateway.kept_answers.socket_turns import SocketTurns
from gateway.request.answer_parts import responses_error

HANDSHAKE: Scope = {
    "type": "websocket",
    "scheme": "wss",
    "path": "/v1/responses",
    "subprotocols": [],
    "headers": [
        (b"host", b"x"),
        (b"authorization", b"Bearer k"),
        (b"upgrade", b"websocket"),
        (b"sec-websocket-key", b"k"),
    ],
}
HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
DONE = b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"r"}}\n\n'


class Told:
    """What a client is told, and what ended, in their order."""

    def __init__(self, lane: str | None = None) -> None:
        self.said: list[Any] = []
        self.post = Post(HANDSHAKE, b"{}", lane, self.tell, self.end, set(), lambda: False)

    async def tell(self, message: bytes) -> None:
        self.said.append(json.loads(message))

    def end(self, response: bytes | None) -> None:
        self.said.append(response)

    async def hear(self, head: Message, *bodies: bytes) -> list[Any]:
        await self.post.send(head)
        for number, body in enumerate(bodies, 1):
            await self.post.send({"type": "http.response.body", "body": body, "more_body": number < len(bodies)})
        return self.said


async def test_each_event_is_a_message_however_the_stream_is_cut_and_nothing_else_is() -> None:
    stream = b': still here\n\ndata: {"type":"a"}\n\n' + DONE + b"data: [DONE]\n\n"
    whole = [{"type": "a"}, b'{"id":"r"}', {"type": "response.completed", "response": {"id": "r"}}]
    assert await Told().hear(HEAD, stream) == whole
    assert await Told().hear(HEAD, *(bytes([one]) for one in stream)) == whole


async def test_a_stream_that_breaks_off_ends_with_one_message() -> None:
    error = {"message": "m", "type": "server_error", "param": None, "code": "stream_broken"}
    said = await Told("a").hear(HEAD, responses_error(error), b'data: {"type":"response.failed"}\n\n')
    assert said == [None, {"stream_id": "a", "type": "error", "status": 502, "error": error, "headers": {}}]


async def test_a_response_that_failed_is_told_as_it_is() -> None:
    said = await Told("a").hear(HEAD, b'data: {"type":"response.failed"}\n\n')
    assert said == [None, {"stream_id": "a", "type": "response.failed"}]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            b'{"error":{"message":"m","type":"t","param":"p","code":null}}',
            {"message": "m", "type": "t", "param": "p", "code": "t"},
        ),
        (b'{"message":"m"}', {"message": "m", "type": "invalid_request_error", "code": "invalid_request_error"}),
        (b"\xff", {"message": "\ufffd", "type": "invalid_request_error", "code": "invalid_request_error"}),
    ],
)
async def test_a_refusal_is_one_message_whatever_its_form(body: bytes, error: Any) -> None:
    head = {
        "type": "http.response.start",
        "status": 429,
        "headers": [(b"content-length", b"9"), (b"retry-after", b"1")],
    }
    assert await Told().hear(head, body) == [
        None,
        {"type": "error", "status": 429, "error": error, "headers": {"retry-after": "1"}},
    ]


async def test_the_post_has_the_headers_of_the_handshake_that_are_not_about_it() -> None:
    scope = Told().post.scope
    assert (scope["type"], scope["method"], scope["scheme"]) == ("http", "POST", "https")
    assert dict(scope["headers"]) == {
        b"host": b"x",
        b"authorization": b"Bearer k",
        b"content-type": b"application/json",
        b"content-length": b"2",
    }


def test_a_lane_is_named_first() -> None:
    assert in_lane(b' {"a":1}', "b") == b'{"stream_id":"b","a":1}'


async def test_an_application_that_breaks_ends_the_socket_as_failed(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("a bug")

    async def admit(key: KeyRecord) -> None:
        raise AssertionError("nothing is warmed up")

    key, load, sent = KeyRecord("key-1", "test", "app"), Load(), list[Message]()
    heard: asyncio.Queue[Message] = asyncio.Queue()

    async def send(message: Message) -> None:
        sent.append(message)

    sockets = ResponseSockets(
        broken, load, SocketLimits(9, 1000), SocketTurns(max_bytes=1000), key_of=lambda scope: key, admit=admit
    )
    for message in [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": '{"type":"response.create"}'}]:
        heard.put_nowait(message)
    with caplog.at_level(logging.ERROR):
        await asyncio.wait_for(sockets(HANDSHAKE, heard.get, send), 60)
    assert sent == [{"type": "websocket.accept"}, {"type": "websocket.close", "code": 1011}]
    assert "a response over a WebSocket failed" in caplog.text
    assert (sockets.open, load.buffered_bytes) == (0, 0)
