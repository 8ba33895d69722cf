"""What a connection to the web UI is given time for; in virtual time, and once on a socket."""

import asyncio
import resource

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from dashboards.http_protocol import PATIENCE_SECONDS, TOO_SLOW, BoundedProtocol, bounded, most_connections
from tests.virtual_time import run
from tests.virtual_wire import Wire, drip

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
KEEP_ALIVE_SECONDS = 5


class Page:
    """Says how long a body was: at once where nobody reads it (/unread), an hour later where the path is /slow."""

    def __init__(self) -> None:
        self.left = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = b"" if scope["path"] == "/unread" else await Request(scope, receive).body()
        except ClientDisconnect:
            self.left += 1
            return
        if scope["path"] == "/slow":
            await asyncio.sleep(3600)
        await Response(f"{len(body)};")(scope, receive, send)


def connect(app: Page | None = None) -> Wire:
    return Wire(BoundedProtocol, app or Page(), keep_alive_seconds=KEEP_ALIVE_SECONDS)


@pytest.mark.parametrize(
    ("begun", "piece", "last_words"),
    [
        (b"GET /", b"a", TOO_SLOW),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx-slow: ", b"a", TOO_SLOW),
        (POST, b"a", b""),
        (CHUNKED, b"1\r\na\r\n", b""),
        (CHUNKED + b"1\r\na\r\n0\r\nx-slow: ", b"a", b""),
    ],
)
def test_what_drips_in_is_not_waited_for(begun: bytes, piece: bytes, last_words: bytes) -> None:
    async def scene() -> tuple[float, bytes]:
        wire = connect()
        await wire.hear(begun)
        return await drip(wire, piece), wire.said

    ended, said = run(scene)
    assert PATIENCE_SECONDS <= ended <= PATIENCE_SECONDS + 10
    assert said == last_words


def test_who_says_nothing_is_let_go_without_a_word() -> None:
    async def scene() -> tuple[float | None, bytes]:
        wire = connect()
        await asyncio.sleep(3600)
        return wire.ended, wire.said

    assert run(scene) == (PATIENCE_SECONDS, b"")


def test_a_second_head_has_its_own_time() -> None:
    async def scene() -> tuple[float, bytes]:
        wire = connect()
        await asyncio.sleep(50)
        await wire.hear(GET)
        await asyncio.sleep(4)
        await wire.hear(b"GET /")
        return await drip(wire, b"a"), wire.said

    ended, said = run(scene)
    assert ended == 54 + PATIENCE_SECONDS
    assert said.endswith(b"0;" + TOO_SLOW)


def test_a_slow_upload_lives_while_it_moves_and_its_connection_serves_on() -> None:
    async def scene() -> tuple[float | None, bytes]:
        wire = connect()
        await wire.hear(POST)
        for _ in range(100):
            await asyncio.sleep(15)
            await wire.hear(b"x" * 10_000)
        await wire.hear(GET)
        await asyncio.sleep(3600)
        return wire.ended, wire.said

    ended, said = run(scene)
    assert ended == 1500 + KEEP_ALIVE_SECONDS
    assert [part.rpartition(b"\r\n")[2] for part in said.split(b";")] == [b"1000000", b"0", b""]


def test_a_body_whose_answer_is_out_earns_no_time_however_much_of_it_comes() -> None:
    async def scene() -> float:
        wire = connect()
        await wire.hear(POST.replace(b"/ ", b"/unread ").replace(b"1000000", b"100000000"))
        return await drip(wire, b"x" * 10_000)

    assert run(scene) == PATIENCE_SECONDS


def test_a_page_hears_that_a_body_will_not_come() -> None:
    async def scene() -> int:
        app = Page()
        wire = connect(app)
        await wire.hear(POST + b"half")
        await asyncio.sleep(2 * PATIENCE_SECONDS)
        return app.left

    assert run(scene) == 1


def test_what_is_behind_a_long_answer_does_not_cut_it_and_has_its_own_time_after_it() -> None:
    async def scene() -> tuple[bytes, float | None]:
        wire = connect()
        await wire.hear(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\nGET /")
        await asyncio.sleep(3601)
        said = wire.said
        await asyncio.sleep(3600)
        return said, wire.ended

    said, ended = run(scene)
    assert said.endswith(b"0;")
    assert ended == 3600 + PATIENCE_SECONDS


def test_who_does_not_take_an_answer_is_dropped_and_who_does_is_not() -> None:
    async def scene() -> tuple[float | None, float | None]:
        slow, stuck = connect(), connect()
        for wire in (slow, stuck):
            await wire.hear(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
            wire.protocol.pause_writing()
        await asyncio.sleep(PATIENCE_SECONDS - 1)
        slow.protocol.resume_writing()
        await asyncio.sleep(10)
        return slow.ended, stuck.ended

    assert run(scene) == (None, PATIENCE_SECONDS)


def test_too_many_connections_cost_the_longest_awaited_and_no_answer() -> None:
    """Of four one is served, one drips a body, one is silent and one speaks; then come three more."""

    async def scene() -> list[tuple[float | None, bytes]]:
        server, narrow = ServerState(), bounded(4)

        async def come(sent: bytes = b"") -> Wire:
            wire = Wire(narrow, Page(), keep_alive_seconds=KEEP_ALIVE_SECONDS, server=server)
            if sent:
                await wire.hear(sent)
            await asyncio.sleep(1)
            return wire

        served = await come(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        wires = [served, await come(POST), await come(), await come(b"GET /")]
        wires += [await come() for _ in range(3)]
        return [(wire.ended, wire.said) for wire in wires]

    *others, last = run(scene)
    assert others == [(None, b""), (4, b""), (5, b""), (6, b""), (None, b""), (None, b"")]
    assert last == (None, b"")


def test_who_comes_while_all_are_served_hears_why() -> None:
    async def scene() -> list[tuple[float | None, bytes]]:
        server = ServerState()
        wires = [Wire(bounded(2), Page(), keep_alive_seconds=KEEP_ALIVE_SECONDS, server=server) for _ in range(2)]
        for wire in wires:
            await wire.hear(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        wires.append(Wire(bounded(2), Page(), keep_alive_seconds=KEEP_ALIVE_SECONDS, server=server))
        await asyncio.sleep(1)
        wires.append(Wire(bounded(3), Page(), keep_alive_seconds=KEEP_ALIVE_SECONDS, server=server))
        await wires[-1].hear(GET)
        return [(wire.ended, wire.said[:12]) for wire in wires]

    assert run(scene) == [(None, b""), (None, b""), (0, b"HTTP/1.1 503"), (None, b"HTTP/1.1 200")]


def test_a_server_keeps_files_for_asking_the_gateway() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 0 < most_connections() <= max(soft // 2, 1) or soft == resource.RLIM_INFINITY


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", GET[:-2] + b"host: y\r\n\r\n"]
)
def test_what_is_no_request_is_refused(sent: bytes) -> None:
    async def scene() -> bytes:
        wire = connect()
        await wire.hear(sent)
        return wire.said

    assert run(scene).startswith(b"HTTP/1.1 400 ")


def test_no_request_is_not_told_in_the_middle_of_an_answer() -> None:
    async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await asyncio.sleep(3600)

    async def scene() -> tuple[bytes, float | None]:
        wire = Wire(BoundedProtocol, streaming, keep_alive_seconds=KEEP_ALIVE_SECONDS)
        await wire.hear(CHUNKED)
        await wire.hear(b"five\r\n")
        return wire.said.rpartition(b"\r\n\r\n")[2], wire.ended

    assert run(scene) == (b"3\r\none\r\n", 0)
