import asyncio
import os
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from starlette.types import Receive, Scope, Send

from gateway.errors import StateError
from gateway.process.patient_protocol import CONNECTION, patient_protocol
from gateway.process.server import bind, free_port, loop_factory, reserve, serve_until_stopped
from tests.live_server import connected, serving

PIECE = b"x" * 65_536
PIECES = 2000


class Endless:
    """An application that sends 131 MB for each request; `taken` is how much each could send, in the order of
    arrival."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.is_gone = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        number = len(self.taken)
        self.taken.append(0)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        watching = asyncio.create_task(self._watch(receive))
        for _ in range(PIECES):
            if self.is_gone.is_set():
                break
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
            self.taken[number] += len(PIECE)
        watching.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.is_gone.set()


async def connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    port = int(url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    return reader, writer


async def test_a_client_that_does_not_read_is_not_written_to_and_is_dropped_in_the_end() -> None:
    app = Endless()
    async with serving(app, http=patient_protocol(0.5)) as url, asyncio.timeout(60):
        _, slow = await connect(url)
        await app.is_gone.wait()
        slow.close()
    assert app.taken[0] < PIECES * len(PIECE) / 4, "the rest was never taken from upstream for it"


async def test_a_client_that_reads_slowly_is_not_dropped() -> None:
    app = Endless()
    async with serving(app, http=patient_protocol(30.0)) as url, asyncio.timeout(60):
        reader, writer = await connect(url)
        for _ in range(20):
            assert await reader.read(1 << 20)
            await asyncio.sleep(0.01)
        assert not app.is_gone.is_set()
        writer.close()
        await app.is_gone.wait()


def test_a_reserved_port_is_shared_with_those_who_ask_for_it_and_with_nobody_else() -> None:
    with reserve("127.0.0.1", 0) as reserved:
        port = int(reserved.getsockname()[1])
        with bind("127.0.0.1", port, is_shared=True), bind("127.0.0.1", port, is_shared=True):
            with pytest.raises(StateError, match="Address already in use"):
                bind("127.0.0.1", port)
            with pytest.raises(StateError, match="make serve PORT"):
                reserve("127.0.0.1", port)
    with socket.socket() as again:
        again.bind(("127.0.0.1", port))


async def test_connections_are_dealt_out_to_all_who_share_the_port() -> None:
    with reserve("127.0.0.1", 0) as reserved:
        port = int(reserved.getsockname()[1])
        with bind("127.0.0.1", port, is_shared=True) as one, bind("127.0.0.1", port, is_shared=True) as two:
            clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(64)]
            accepted = [0, 0]
            for number, listener in enumerate((one, two)):
                listener.settimeout(0)
                while True:
                    try:
                        listener.accept()[0].close()
                    except BlockingIOError:
                        break
                    accepted[number] += 1
            for client in clients:
                client.close()
    assert sum(accepted) == 64
    assert min(accepted) > 0


@pytest.mark.usefixtures("hangups_end")
@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_it_stops_when_it_is_told_to(told: signal.Signals) -> None:
    async def hello(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    with bind("127.0.0.1", 0) as listener:
        running = asyncio.create_task(serve_until_stopped(hello, listener, drain_seconds=1))
        reader, writer = await connect(f"http://127.0.0.1:{listener.getsockname()[1]}")
        assert (await reader.readline()).startswith(b"HTTP/1.1 204")
        os.kill(os.getpid(), told)
        await asyncio.wait_for(running, 300)
        writer.close()


async def test_requests_that_are_cut_off_at_the_end_are_counted_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await asyncio.Event().wait()

    with bind("127.0.0.1", 0) as listener:
        running = asyncio.create_task(serve_until_stopped(endless, listener, drain_seconds=0))
        _, writer = await connect(f"http://127.0.0.1:{listener.getsockname()[1]}")
        await begun.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, 300)
        writer.close()
    assert [(one.getMessage(), one.exc_info) for one in caplog.records] == [
        ("requests that had not ended in time and were cut off: 1", None)
    ]


@pytest.mark.parametrize("may_hurry", [True, False])
def test_who_is_told_twice_hurries_only_where_a_person_may_mean_it(may_hurry: bool) -> None:
    """A service manager signals a worker and its parent, and the parent signals the worker. Later signals end
    nothing.

    On the loop that gateways use: since Python 3.12 asyncio's own waits for connections that nobody closes.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_told_twice(may_hurry=may_hurry))


async def _told_twice(*, may_hurry: bool) -> None:
    finish, again = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        await finish.wait()
        await send({"type": "http.response.body", "body": b"whole", "more_body": False})

    with bind("127.0.0.1", 0) as listener:
        running = asyncio.create_task(
            serve_until_stopped(slow, listener, drain_seconds=300, may_hurry=may_hurry, told_again=again.set)
        )
        reader, writer = await connect(f"http://127.0.0.1:{listener.getsockname()[1]}")
        await reader.readuntil(b"begun")
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.2)  # for the server's own tick, ten times a second
        if not may_hurry:
            finish.set()
            await asyncio.wait_for(reader.readuntil(b"whole"), 300)
        await asyncio.wait_for(running, 300)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(again.wait(), 300)
        writer.close()


@pytest.mark.usefixtures("hangups_end")
def test_a_burst_of_callers_is_heard_within_few_turns_of_the_loop() -> None:
    """Tested on the loop that gateways use: its iterations are long while it is busy."""
    heard_at: list[int] = []
    turn = 0

    async def listen(scope: Scope, receive: Receive, send: Send) -> None:
        heard_at.append(turn)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def scene() -> None:
        nonlocal turn
        with bind("127.0.0.1", 0) as listener:
            callers = [socket.create_connection(listener.getsockname()) for _ in range(200)]
            for caller in callers:
                caller.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            running = asyncio.create_task(serve_until_stopped(listen, listener, drain_seconds=1))
            async with asyncio.timeout(300):
                while len(heard_at) < 200:
                    await asyncio.sleep(0)
                    turn += 1
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(running, 300)
            for caller in callers:
                caller.close()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(scene())
    assert heard_at[-1] - heard_at[0] < 100, "one a turn would be 200"


class Leaving:
    """An application that answers nothing and records the callers that leave, as the server reports them."""

    def __init__(self) -> None:
        self.is_listening = asyncio.Event()
        self.has_left = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        listeners = scope["extensions"][CONNECTION]["listeners"]
        listeners.add(self.has_left.set)
        self.is_listening.set()
        await self.has_left.wait()
        listeners.discard(self.has_left.set)


async def test_a_listener_hears_of_a_lost_connection_without_asking_for_messages() -> None:
    app = Leaving()
    async with serving(app, http=patient_protocol(30.0)) as url, asyncio.timeout(60):
        _, writer = await connect(url)
        await app.is_listening.wait()
        assert not app.has_left.is_set()
        writer.close()
        await app.has_left.wait()


def test_a_taken_port_comes_with_another_that_is_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = int(taken.getsockname()[1])
        with pytest.raises(StateError, match=r"Address already in use; .*`make serve PORT=(\d+)`") as caught:
            bind("127.0.0.1", port)
    offered = int(str(caught.value).rpartition("=")[2].strip("`"))
    assert offered != port


def test_an_address_of_another_machine_is_no_matter_of_ports() -> None:
    with pytest.raises(StateError, match=r"cannot listen on 192\.0\.2\.1:0: .*choose an address of this machine"):
        bind("192.0.2.1", 0)


class Slow:
    """An application that answers in two pieces once told to. With `cares` it listens for its caller to leave."""

    def __init__(self, *, cares: bool) -> None:
        self._cares = cares
        self.has_begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.has_left = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._cares:
            scope["extensions"][CONNECTION]["listeners"].add(self.has_left.set)
        self.has_begun.set()
        await self.may_end.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one ", "more_body": True})
        await send({"type": "http.response.body", "body": b"two", "more_body": False})


@asynccontextmanager
async def asked(app: Slow, http: type[asyncio.Protocol]) -> AsyncGenerator[int]:
    """The port of a server of this application, which ends even if the test fails."""
    async with serving(app, http=http) as url:
        try:
            async with asyncio.timeout(300):
                yield int(url.rpartition(":")[2])
        finally:
            app.may_end.set()


LAST = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
OLD = b"GET / HTTP/1.0\r\n\r\n"
NOT_LAST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
CHUNKED = b"4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "cares", "body"),
    [(LAST, True, CHUNKED), (OLD, True, b"one two"), (NOT_LAST, False, CHUNKED), (LAST, False, CHUNKED)],
)
async def test_who_only_has_nothing_more_to_say_is_answered(request_bytes: bytes, cares: bool, body: bytes) -> None:
    app = Slow(cares=cares)
    async with asked(app, patient_protocol(30.0, last_word_seconds=600.0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_bytes)
        writer.write_eof()
        await app.has_begun.wait()
        app.may_end.set()
        head, _, said = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert head.startswith(b"HTTP/1.1 200")
    assert said == body


@pytest.mark.parametrize(("request_bytes", "seconds"), [(NOT_LAST, 600.0), (LAST, 0.0), (OLD, 0.0)])
async def test_who_could_ask_more_or_ends_later_has_left_a_call_that_costs(
    request_bytes: bytes, seconds: float
) -> None:
    app = Slow(cares=True)
    async with asked(app, patient_protocol(30.0, last_word_seconds=seconds)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_bytes)
        await app.has_begun.wait()
        writer.write_eof()
        await app.has_left.wait()
        assert await reader.read() == b""
        writer.close()


async def test_a_request_cut_in_its_body_is_not_waited_for() -> None:
    async with asked(Slow(cares=False), patient_protocol(30.0)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf")
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"7")]])
async def test_a_caller_of_http_1_0_gets_no_chunks_and_no_interim_answer(headers: list[tuple[bytes, bytes]]) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"one ", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})

    async with connected(app, patient_protocol(30.0)) as (reader, writer):
        writer.write(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\nexpect: 100-continue\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"chunked" not in head
    assert b"connection: close" in head
    assert (b"content-length" in head) is bool(headers)
    assert body == b"one two"


async def test_of_too_many_connections_those_that_wait_longest_go_and_calls_stay() -> None:
    app = Slow(cares=True)
    async with asked(app, patient_protocol(30.0, most=3)) as port:
        waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        calls = [await connect(f"http://127.0.0.1:{port}") for _ in range(3)]
        for reader, writer in waiting:
            assert await reader.read() == b"", "closed, though it never spoke"
            writer.close()
        assert not app.has_left.is_set()
        app.may_end.set()
        for reader, writer in calls:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()


async def test_an_answer_that_is_complete_when_the_end_comes_is_sent() -> None:
    """In whichever iterations of the event loop the two events fall."""

    async def at_once(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in range(int(scope["path"][1:])):
            await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async with serving(at_once, http=patient_protocol(30.0)) as url, asyncio.timeout(300):
        for turns in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n" % turns)
            writer.write_eof()
            assert (await reader.read()).endswith(b"\r\n\r\nok"), turns
            writer.close()


def test_a_port_whose_last_server_closed_its_connections_is_free() -> None:
    """Otherwise the web UI gets another port, and tabs and bookmarks break, when `breakeven serve` is restarted at
    once."""
    with bind("127.0.0.1", 0) as listener:
        port = int(listener.getsockname()[1])
        assert free_port(prefer=port) != port, "somebody listens there"
        with socket.create_connection(("127.0.0.1", port)):
            listener.accept()[0].close()
    assert free_port(prefer=port) == port
