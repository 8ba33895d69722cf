"""Heads of answers are byte for byte what uvicorn writes."""

from collections.abc import Sequence
from functools import partial

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.process.answer_head import AnswerCycle
from gateway.process.patient_protocol import patient_protocol
from tests.virtual_time import run
from tests.virtual_wire import Wire

Headers = Sequence[tuple[bytes, bytes]]
HEADS: Sequence[Headers] = (
    (),
    ((b"content-type", b"application/json"), (b"content-length", b"3")),
    ((b"content-type", b"text/event-stream"), (b"x-breakeven-model", b"small"), (b"cache-control", b"no-cache")),
    ((b"x-value", b"a\ttab, \xe9 and ~"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")),
    ((b"X-Capital", b"kept"), (b"content-length", b"3")),
    ((b"transfer-encoding", b"chunked"),),
    ((b"connection", b"close"), (b"content-length", b"3")),
    ((b"x-empty", b""), (b"content-length", b"3")),
)
REFUSED: Sequence[Headers] = (
    ((b"x-a", b"one\r\nx-b: two"),),
    ((b"x-a", b"nul\0"),),
    ((b"x-a", b"delete\x7f"), (b"x-a", b"fine")),
    ((b"x-a", b"fine"), (b"x-b", b"line\n")),
    ((b"x a", b"space"),),
    ((b"x\r\n", b""),),
    ((b"x:", b"colon"),),
)


def said(headers: Headers, *, is_ours: bool, status: int = 200, method: bytes = b"GET", times: int = 1) -> bytes:
    """All that a connection writes for this many requests, one after the other."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"one" if status != 204 else b""})

    async def play() -> bytes:
        http = patient_protocol(60.0, most=9) if is_ours else HttpToolsProtocol
        wire = Wire(http, app, keep_alive_seconds=5)
        for _ in range(times):
            await wire.hear(method + b" / HTTP/1.1\r\nhost: x\r\n\r\n")
        if is_ours:
            assert type(wire.protocol.cycle) is AnswerCycle
        return wire.said

    return run(play)


@pytest.mark.parametrize("headers", HEADS)
@pytest.mark.parametrize(("status", "method"), [(200, b"GET"), (200, b"HEAD"), (204, b"GET"), (404, b"POST")])
def test_an_answer_is_written_as_by_uvicorn(headers: Headers, status: int, method: bytes) -> None:
    if status == 204 or method == b"HEAD":
        headers = [one for one in headers if one[0] != b"content-length"]
    theirs = said(headers, is_ours=False, status=status, method=method, times=2)
    assert said(headers, is_ours=True, status=status, method=method, times=2) == theirs
    assert theirs.startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize("headers", REFUSED)
def test_what_could_end_a_header_early_is_never_written(headers: Headers) -> None:
    theirs = said(headers, is_ours=False)
    assert said(headers, is_ours=True) == theirs
    assert not theirs.startswith(b"HTTP/1.1 200")


def test_a_body_of_another_length_than_was_said_is_refused() -> None:
    for length in (b"2", b"4"):
        headers = [(b"content-length", length)]
        assert said(headers, is_ours=True) == said(headers, is_ours=False)


@pytest.mark.parametrize("is_at_once", [True, False])
def test_requests_sent_without_waiting_are_answered_in_their_order(is_at_once: bool) -> None:
    async def echo(scope: Scope, receive: Receive, send: Send) -> None:
        told = (scope["method"], scope["path"], scope["raw_path"], scope["query_string"], scope["http_version"])
        body = repr((told, await receive())).encode()
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})

    async def play(*, is_ours: bool) -> bytes:
        wire = Wire(patient_protocol(60.0, most=9) if is_ours else HttpToolsProtocol, echo, keep_alive_seconds=5)
        requests = [
            b"GET /first?a=%20b HTTP/1.1\r\nhost: x\r\n\r\n",
            b"POST /second%2Fpart HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody",
            b"GET /%C3%A4 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        ]
        for piece in [b"".join(requests)] if is_at_once else requests:
            await wire.hear(piece)
        return wire.said

    ours, theirs = (run(partial(play, is_ours=is_ours)) for is_ours in (True, False))
    assert ours == theirs
    assert ours.count(b"HTTP/1.1 200 OK") == 3
