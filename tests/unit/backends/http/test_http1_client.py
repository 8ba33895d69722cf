"""The HTTP client against servers that send exactly the bytes that a test specifies."""

import asyncio
import gc
import tracemalloc
from contextlib import suppress

import pytest

from backends.errors import ConnectFailed, UpstreamUnavailable
from backends.http import http1_connection
from backends.http.http1_client import MOST_TARGETS, Http1Client
from backends.http.http1_connection import Http1Connection
from backends.http.http1_response import Http1Response
from backends.protocol import Timeouts
from tests.unit.backends.http.exact_server import CHUNKED, OK, client, fetch, read_request, says, server
from tests.waiting import until


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


async def test_a_connection_is_used_again_and_a_closed_one_is_not() -> None:
    connections: list[int] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        await says(OK, OK, keeps=False)(reader, writer)

    async with server(handler) as url, client() as made:
        for _ in range(2):
            await fetch(made, url)
        assert len(connections) == 1
        await until(lambda: made.connections == 0)  # the server disconnects
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


async def test_urls_with_ids_in_them_are_not_remembered_for_ever() -> None:
    async with server(says(*[OK] * 200)) as url, client() as made:
        await fetch(made, url)
        tracemalloc.start()
        try:
            for number in range(3 * MOST_TARGETS):
                await fetch(made, f"{url}/{number:x>10000}")
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert held < 3 * MOST_TARGETS * 20_000, "each address, and a head with it"


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


@pytest.mark.parametrize("answer", [OK, CHUNKED + b"1\r\no\r\n", b"", b"no HTTP"])
async def test_a_connection_that_ended_is_freed_without_a_search_for_cycles(answer: bytes) -> None:
    async def ask(url: str) -> None:
        client = Http1Client("b")
        with suppress(UpstreamUnavailable):
            response = await client.send("POST", url, {}, b"{}", timeouts=Timeouts())
            await response.read()
            response.close()  # as after a caller disconnected
        while client.connections:
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # until the loop's iteration that woke us has ended, it refers to the error
        await client.aclose()

    gc.collect()
    gc.disable()
    try:
        async with server(says(answer, keeps=False)) as url:
            await ask(url)
        left = sum(type(one) in (Http1Connection, Http1Response) for one in gc.get_objects())
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
