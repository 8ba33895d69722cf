"""An upstream that costs next to nothing: bare HTTP/1.1 over asyncio. The model's name says what it answers.

`mock-16x0` streams 16 chunks without a pause, `mock-1500x200` 1,500 chunks 200 ms apart; without streaming they answer
at once. Every chunk contains the monotonic time at which it was written, so that a reader on the same machine knows its
age.
"""

import asyncio
import json
import re
import socket
import sys
import time
from typing import cast

import uvloop

MODEL = re.compile(rb"mock-(\d+)x(\d+)")
LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
STREAMED = re.compile(rb'"stream":\s*true')
USAGE = b'{"prompt_tokens":20,"completion_tokens":16,"total_tokens":36}'
START = b'{"id":"chatcmpl-1","created":1700000000,"model":"mock","object":'
ANSWER = (
    START + b'"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"'
    b'The harvest was good this year, and the barns are full."},"finish_reason":"stop"}],"usage":' + USAGE + b"}"
)
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNK = START + b'"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" %d"},"finish_reason":null}]}'
FINISH = START + b'"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
LAST = START + b'"chat.completion.chunk","choices":[],"usage":' + USAGE + b"}"


def event(document: bytes) -> bytes:
    """One server-sent event as one HTTP chunk."""
    body = b"data: " + document + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(body), body)


class Mock(asyncio.Protocol):
    """One connection; requests come one after another, without pipelining."""

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.Transport
        self._next: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next is not None:
            self._next.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        length = LENGTH.search(self._buffer, 0, head_end)
        end = head_end + 4 + (int(length[1]) if length else 0)
        if len(self._buffer) < end:
            return
        body, self._buffer = self._buffer[head_end + 4 : end], self._buffer[end:]
        model = MODEL.search(body)
        if STREAMED.search(body) and model:
            self._transport.write(STREAM_HEAD)
            self._send(int(model[1]), int(model[2]) / 1000)
        else:
            self._transport.write(WHOLE)

    def _send(self, left: int, gap_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if left == 0:
            ending = event(FINISH) + event(LAST) + event(b"[DONE]") + b"0\r\n\r\n"
            self._transport.write(ending)
            self._next = None
            return
        self._transport.write(event(CHUNK % time.monotonic_ns()))
        if gap_seconds:
            self._next = loop.call_later(gap_seconds, self._send, left - 1, gap_seconds)
        else:
            self._next = loop.call_soon(self._send, left - 1, gap_seconds)


async def serve() -> None:
    """Print the base URL, then serve until killed."""
    server = await asyncio.get_running_loop().create_server(Mock, "127.0.0.1", 0, backlog=16384)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}/v1"}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(uvloop.run(serve()))
