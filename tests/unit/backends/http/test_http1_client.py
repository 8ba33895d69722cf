"""The HTTP client against servers that say exactly what a test wrote, byte for byte."""

import asyncio
import gc
import gzip
import ssl
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from backends.errors import ConnectFailed, UpstreamUnavailable
from backends.http import http1_connection
from backends.http.http1_client import Http1Client
from backends.http.http1_connection import MAX_HEADER_BYTES, Http1Connection
from backends.http.http1_response import MAX_WAITING_BYTES
from backends.protocol import Timeouts

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncGenerator[str]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left, as some tests want it to
        finally:
            writer.close()

    running = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    scheme = "https" if tls else "http"
    try:
        yield f"{scheme}://127.0.0.1:{running.sockets[0].getsockname()[1]}/v1/x"
    finally:
        running.close()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            head += await reader.readexactly(int(line.split(b":")[1]))
    return head


def says(*answers: bytes, keeps: bool = True) -> Handler:
    """One answer a request; then the connection is closed, or kept and silent."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await read_request(reader)
            writer.write(answer)
            await writer.drain()
        if keeps:
            await reader.read()

    return handler


@asynccontextmanager
async def client() -> AsyncGenerator[Http1Client]:
    made = Http1Client("b")
    try:
        yield made
    finally:
        await made.aclose()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not condition():
            await asyncio.sleep(0.005)


async def fetch(made: Http1Client, url: str, body: bytes | None = b"{}") -> tuple[int, bytes]:
    response = await made.send("POST", url, {"x-a": "1"}, body, timeouts=Timeouts())
    pieces: list[bytes] = []
    while piece := await response.read():
        pieces.append(piece)
    response.finish()
    return response.status, b"".join(pieces)


async def test_what_is_sent_byte_for_byte() -> None:
    seen: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(OK)

    async with server(handler) as url, client() as made:
        assert await fetch(made, f"{url}?a=b") == (200, b"ok")
    host = url.split("/")[2]
    assert seen == [
        f"POST /v1/x?a=b HTTP/1.1\r\nhost: {host}\r\nuser-agent: breakeven\r\naccept-encoding: identity\r\n"
        "x-a: 1\r\ncontent-length: 2\r\n\r\n{}".encode()
    ]


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
WHOLE_ANSWERS = {
    "length": OK,
    "chunks": CHUNKED + b"1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
    "chunk extensions and trailers": CHUNKED + b"2;x=y\r\nok\r\n0\r\nx-after: 1\r\n\r\n",
    "blanks behind chunk sizes": CHUNKED + b"2  \r\nok\r\n0 \t\r\n\r\n",
    "bare line feeds in the head": b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok",
    "a length beside chunks": CHUNKED[:-2] + b"content-length: 9\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "interim answers first": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + OK,
    "no length, ends with the connection": b"HTTP/1.1 200 OK\r\n\r\nok",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "gzip": b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + gzip.compress(b"ok"),
    "deflate": b"HTTP/1.1 200 OK\r\ncontent-encoding: deflate\r\n\r\n" + zlib.compress(b"ok"),
}


@pytest.mark.parametrize("name", WHOLE_ANSWERS)
@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_an_answer_is_read_whatever_its_framing_and_its_pieces(name: str, size: int) -> None:
    answer = WHOLE_ANSWERS[name]

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for start in range(0, len(answer), size):
            writer.write(answer[start : start + size])
            await writer.drain()
            await asyncio.sleep(0)

    async with server(handler) as url, client() as made:
        assert await fetch(made, url) == (200, b"ok")


BROKEN_ANSWERS = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "a short body": b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok",
    "no last chunk": CHUNKED + b"2\r\nok\r\n",
    "a bad chunk size": CHUNKED + b"zz\r\nok\r\n",
    "a letter behind a chunk's size": CHUNKED + b"2 z\r\nok\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
    "endless headers": b"HTTP/1.1 200 OK\r\n" + b"x-a: " + b"a" * (MAX_HEADER_BYTES + 1) + b"\r\n\r\n",
    "endless interim answers": b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 1_001 + OK,
    "broken gzip": b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nok",
    "cut gzip": b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + gzip.compress(b"ok")[:-4],
    "an encoding not asked for": b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 2\r\n\r\nok",
}


@pytest.mark.parametrize("name", BROKEN_ANSWERS)
async def test_a_broken_answer_is_an_error_never_a_short_one(name: str) -> None:
    async with server(says(BROKEN_ANSWERS[name], keeps=False)) as url, client() as made:
        with pytest.raises(UpstreamUnavailable):
            await fetch(made, url)


async def test_a_connection_is_used_again_and_a_closed_one_is_not() -> None:
    connections: list[int] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        await says(OK, OK, keeps=False)(reader, writer)

    async with server(handler) as url, client() as made:
        for _ in range(2):
            await fetch(made, url)
        assert len(connections) == 1
        await until(lambda: made.connections == 0)  # the server hangs up
        await fetch(made, url)
        assert len(connections) == 2


CLOSING = {
    "its server wants to close": b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
    "its answer told two ends": CHUNKED[:-2] + b"content-length: 9\r\n\r\n2\r\nok\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("why", CLOSING)
async def test_a_connection_is_not_kept_where(why: str) -> None:
    connections: list[int] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        await says(CLOSING[why], OK)(reader, writer)

    async with server(handler) as url, client() as made:
        await fetch(made, url)
        await fetch(made, url)
    assert len(connections) == 2


EVIL = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"


@pytest.mark.parametrize("size", range(1, len(EVIL) + 1))
async def test_an_answer_nobody_asked_for_is_never_the_next_calls(size: int) -> None:
    async with server(says(OK + EVIL[:size], OK, keeps=False)) as url, client() as made:
        assert await fetch(made, url) == (200, b"ok")
        assert await fetch(made, url) == (200, b"ok")


async def test_what_follows_a_body_in_chunks_is_no_header_of_the_next_answer() -> None:
    async with server(says(CHUNKED + b"2\r\nok\r\n0\r\ncontent-encoding: br\r\n\r\n", OK)) as url, client() as made:
        assert [await fetch(made, url) for _ in range(2)] == [(200, b"ok")] * 2
        assert made.connections == 1


async def test_headers_are_found_whatever_their_case_and_repeated_ones_joined() -> None:
    answer = b"HTTP/1.1 200 OK\r\nX-Name: a\r\nx-nAME: \xe9\r\nContent-Length: 0\r\n\r\n"
    async with server(says(answer)) as url, client() as made:
        headers = (await made.send("POST", url, {}, b"{}", timeouts=Timeouts())).headers
    assert dict(headers) == {"x-name": "a, \xe9", "content-length": "0"}
    assert headers["X-NAME"] == "a, \xe9"
    assert "x-nothing" not in headers
    assert headers.get("x-nothing") is None
    assert len(headers) == 2


async def test_bytes_nobody_asked_for_end_the_connection() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await proceed.wait()
        writer.write(EVIL)
        await reader.read()

    proceed = asyncio.Event()
    async with server(handler) as url, client() as made:
        assert await fetch(made, url) == (200, b"ok")
        assert made.connections == 1
        proceed.set()
        await until(lambda: made.connections == 0)


async def test_many_at_once_have_a_connection_each() -> None:
    async with server(says(OK)) as url, client() as made:
        answers = await asyncio.gather(*(fetch(made, url) for _ in range(50)))
    assert answers == [(200, b"ok")] * 50


async def test_closing_early_cuts_the_connection_and_a_read_under_way() -> None:
    left = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED + b"1\r\no\r\n")
        assert await reader.read() == b""
        left.set()

    async with server(handler) as url, client() as made:
        response = await made.send("POST", url, {}, b"{}", timeouts=Timeouts())
        assert await response.read() == b"o"
        reading = asyncio.create_task(response.read())
        await asyncio.sleep(0)
        response.close()
        with pytest.raises(UpstreamUnavailable):
            await reading
        await asyncio.wait_for(left.wait(), 60)


async def test_a_cancelled_call_cuts_the_connection() -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        asked.set()
        assert await reader.read() == b""
        left.set()

    async with server(handler) as url, client() as made:
        call = asyncio.create_task(made.send("POST", url, {}, b"{}", timeouts=Timeouts()))
        await asyncio.wait_for(asked.wait(), 60)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await asyncio.wait_for(left.wait(), 60)


async def test_a_finished_answer_gives_its_last_bytes_a_moment_and_keeps_the_connection() -> None:
    connections: list[int] = []
    finished = asyncio.Semaphore(0)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        for _ in range(2):
            await read_request(reader)
            writer.write(CHUNKED + b"2\r\nok\r\n")
            await writer.drain()
            await finished.acquire()
            writer.write(b"0\r\n\r\n")
        await reader.read()

    async with server(handler) as url, client() as made:
        for _ in range(2):
            response = await made.send("POST", url, {}, b"{}", timeouts=Timeouts())
            assert await response.read() == b"ok"
            response.finish()
            assert not response.is_complete
            finished.release()
            while not response.is_complete:
                await asyncio.sleep(0.005)
    assert len(connections) == 1


async def test_an_upstream_faster_than_its_reader_waits() -> None:
    total, sent = 64 * MAX_WAITING_BYTES, 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        while sent < total:
            writer.write(b"x" * MAX_WAITING_BYTES)
            await writer.drain()
            sent += MAX_WAITING_BYTES

    async with server(handler) as url, client() as made:
        response = await made.send("POST", url, {}, b"{}", timeouts=Timeouts())
        await asyncio.sleep(0.3)
        assert sent < total / 2, "kernel buffers and ours, not the whole body"
        size = 0
        while piece := await response.read():
            size += len(piece)
    assert size == total


async def test_a_large_body_arrives_whole() -> None:
    seen: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(OK)

    body = bytes(range(256)) * 40_000
    async with server(handler) as url, client() as made:
        assert await fetch(made, url, body) == (200, b"ok")
    assert seen[0].endswith(body)


async def test_a_large_body_refused_at_once_is_the_refusal() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        while await reader.read(2**20):
            pass

    async with server(handler) as url, client() as made:
        assert await fetch(made, url, b"x" * 100_000_000) == (413, b"no")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "http:///v1", "ftp://host/v1", "http://host:99999/v1"])
async def test_an_address_that_cannot_be_reached_is_connect_failed(url: str) -> None:
    async with client() as made:
        with pytest.raises(ConnectFailed):
            await made.send("GET", url, {}, None, timeouts=Timeouts())


async def test_after_a_burst_no_connection_is_kept_for_ever_and_calls_under_way_are_left_alone() -> None:
    may_end = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await read_request(reader):
            if b"/slow" in request:
                await may_end.wait()
            writer.write(OK)

    made = Http1Client("b", keep_alive_seconds=0.05)
    async with server(handler) as url:
        slow = asyncio.create_task(fetch(made, f"{url}/slow"))
        await asyncio.gather(*(fetch(made, url) for _ in range(20)))
        await until(lambda: made.connections == 1)
        may_end.set()
        assert await slow == (200, b"ok")
        await until(lambda: made.connections == 0)
        assert await fetch(made, url) == (200, b"ok")
        await until(lambda: made.connections == 0)
        await made.aclose()


async def test_a_connection_that_ended_is_freed_without_a_search_for_cycles() -> None:
    async def ask(url: str) -> None:
        client = Http1Client("b")
        await (await client.send("POST", url, {}, b"{}", timeouts=Timeouts())).read()
        while client.connections:
            await asyncio.sleep(0)
        await client.aclose()

    gc.collect()
    gc.disable()
    try:
        async with server(says(OK, keeps=False)) as url:
            await ask(url)
        left = sum(type(one) is Http1Connection for one in gc.get_objects())
    finally:
        gc.enable()
    assert left == 0


async def dropped(made: Http1Client, url: str, body: bytes = b"{}") -> UpstreamUnavailable:
    with pytest.raises(UpstreamUnavailable, match="dropped the connection") as caught:
        await fetch(made, url, body)
    return caught.value


async def test_a_request_that_is_dropped_unanswered_may_be_billed_but_where_a_kept_connection_was_stale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def reads_and_hangs_up(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await read_request(reader)

    async def answers_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await says(OK, keeps=False)(reader, writer)
        await read_request(reader)

    async def answers_once_and_hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await says(OK, keeps=False)(reader, writer)
        await reader.readexactly(1)

    async with server(reads_and_hangs_up) as url, client() as made:
        assert (await dropped(made, url)).may_be_billed
    monkeypatch.setattr(http1_connection, "_STALE_SECONDS", 3600.0)
    async with server(answers_once_and_hangs_up) as url, client() as made:
        assert (await fetch(made, url))[0] == 200
        assert not (await dropped(made, url)).may_be_billed
    monkeypatch.setattr(http1_connection, "_STALE_SECONDS", 0.0)
    async with server(answers_once) as url, client() as made:
        assert (await fetch(made, url))[0] == 200
        assert (await dropped(made, url)).may_be_billed, "it was waited for longer than a stale connection takes"


async def test_a_request_that_was_not_sent_to_its_end_is_not_billed() -> None:
    async def hangs_up_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.transport.abort()

    async with server(hangs_up_early) as url, client() as made:
        assert not (await dropped(made, url, b" " * 50_000_000)).may_be_billed
