import asyncio
import os
import signal
import socket

import pytest
from starlette.types import Receive, Scope, Send

from gateway.errors import StateError
from gateway.process.server import CONNECTION, bind, patient_protocol, reserve, serve_until_stopped
from tests.live_server import serving

PIECE = b"x" * 65_536
PIECES = 2000


class Endless:
    """Sends 131 MB to whoever asks; `taken` is how much of it each has got rid of, in the order they came."""

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


class Leaving:
    """Answers nothing: says who leaves, as the server tells it."""

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
