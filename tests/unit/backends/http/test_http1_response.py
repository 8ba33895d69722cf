"""Complete and broken responses, in any framing and any pieces: what is read, and when the upstream has to wait."""

import asyncio
import gzip
import tracemalloc
import zlib

import pytest

from backends.errors import UpstreamUnavailable
from backends.http.http1_connection import MAX_HEADER_BYTES
from backends.http.http1_response import MAX_WAITING_BYTES, Headers, Http1Response
from backends.protocol import Timeouts
from tests.unit.backends.http.exact_server import CHUNKED, OK, client, fetch, read_request, says, server

WHOLE_ANSWERS = {
    "length": OK,
    "chunks": CHUNKED + b"1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
    "chunk extensions and trailers": CHUNKED + b"2;x=y\r\nok\r\n0\r\nx-after: 1\r\n\r\n",
    "blanks behind chunk sizes": CHUNKED + b"2  \r\nok\r\n0 \t\r\n\r\n",
    "bare line feeds in the head": b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok",
    "a length beside chunks": CHUNKED[:-2] + b"content-length: 9\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "a folded header": b"HTTP/1.1 200 OK\r\nx-a: b\r\n\tc\r\ncontent-length:\r\n 2\r\n\r\nok",
    "interim answers first": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + OK,
    "no length, ends with the connection": b"HTTP/1.1 200 OK\r\n\r\nok",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "gzip": b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + gzip.compress(b"ok"),
    "x-gzip": b"HTTP/1.1 200 OK\r\ncontent-encoding: x-gzip\r\n\r\n" + gzip.compress(b"ok"),
    "deflate": b"HTTP/1.1 200 OK\r\ncontent-encoding: deflate\r\n\r\n" + zlib.compress(b"ok"),
}


class Wire:
    """A connection that supports everything a response may call."""

    def close(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


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
    "a NUL in a header": OK.replace(b"content", b"x-a: \0\r\ncontent", 1),
    "a length in two lines": OK.replace(b"2\r\n", b"0\r\n 2\r\n", 1),
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


@pytest.mark.parametrize(
    "begun",
    [b"HTTP/1.1 200 OK\r\nx-a: ", b"HTTP/1.1 200 OK\r\nx-", b"HTTP/1.1 200 ", CHUNKED + b"2;", CHUNKED + b"0\r\nx-a: "],
)
async def test_what_has_no_end_in_a_head_or_behind_a_body_is_cut_off_while_it_comes(begun: bytes) -> None:
    """All of it used to be buffered, and copied for every piece: 16 MB blocked the event loop for 1.8 s, 64 MB for 20
    s."""
    sent = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(begun)
        while sent < 64 * MAX_HEADER_BYTES:
            writer.write(b"a" * MAX_HEADER_BYTES)
            await writer.drain()
            sent += MAX_HEADER_BYTES
        await reader.read()

    async with server(handler) as url, client() as made:
        with pytest.raises(UpstreamUnavailable, match="sent a header without end"):
            await fetch(made, url)


async def test_what_follows_a_compressed_answer_is_kept_nowhere() -> None:
    connection = Wire()
    response = Http1Response(connection, "b")
    response.begin(200, Headers([(b"content-encoding", b"gzip")]))
    response.add(gzip.compress(b"ok"))
    assert await response.read() == b"ok"
    reading = asyncio.ensure_future(response.read())
    tracemalloc.start()
    for _ in range(8):
        response.add(bytes(MAX_WAITING_BYTES))
        await asyncio.sleep(0)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2 * MAX_WAITING_BYTES
    response.end()
    assert await reading == b""


async def test_headers_are_found_whatever_their_case_and_repeated_ones_joined() -> None:
    answer = b"HTTP/1.1 200 OK\r\nX-Name: a\r\nx-nAME: \xe9\r\nContent-Length: 0\r\n\r\n"
    async with server(says(answer)) as url, client() as made:
        headers = (await made.send("POST", url, {}, b"{}", timeouts=Timeouts())).headers
    assert dict(headers) == {"x-name": "a, \xe9", "content-length": "0"}
    assert headers["X-NAME"] == "a, \xe9"
    assert "x-nothing" not in headers
    assert headers.get("x-nothing") is None
    assert len(headers) == 2


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
