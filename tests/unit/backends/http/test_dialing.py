"""Names with several addresses, and a resolver that fails, hangs or is queried by many at once."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import uvloop

from backends.http.dialing import SIGNS_OF_LIFE, STALE_SECONDS, Dialer, is_for_want_of_files
from tests.unit.backends.http.test_http1_tls import self_signed

USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)
NOWHERE = "127.0.0.2"
HERE = "127.0.0.1"
PATIENCE_SECONDS = 900.0


class Resolver(asyncio.SelectorEventLoop):
    """An event loop that resolves names as the test specifies."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: tuple[str, ...] = (HERE,)
        self.is_down = False
        self.asked = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        if host in (HERE, NOWHERE):
            return await super().getaddrinfo(host, port, **options)
        self.asked += 1
        await self.answers.wait()
        if self.is_down:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in self.addresses]


class Line(asyncio.Protocol):
    """Notes the address that was dialed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.reached = str(transport.get_extra_info("peername")[0])
        transport.close()


@asynccontextmanager
async def listening() -> AsyncGenerator[int]:
    server = await asyncio.start_server(lambda _, writer: writer.close(), HERE, 0)
    async with server, asyncio.timeout(PATIENCE_SECONDS):
        yield int(server.sockets[0].getsockname()[1])


@asynccontextmanager
async def swallowing(port: int) -> AsyncGenerator[None]:
    """A listener at the same port of another address that accepts no connection, as its queue is full."""
    with socket.socket() as full:
        full.bind((NOWHERE, port))
        full.listen(0)
        fillers: list[socket.socket] = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex((NOWHERE, port))
            fillers.append(filler)
        try:
            yield
        finally:
            for filler in fillers:
                filler.close()


def in_loop(scene: Callable[[Resolver], Any]) -> None:
    with asyncio.Runner(loop_factory=Resolver) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Resolver)
        runner.run(scene(loop))


@pytest.mark.parametrize("addresses", [(HERE,), (NOWHERE, HERE), (HERE, NOWHERE)])
def test_a_refusing_address_is_passed_over(addresses: tuple[str, ...]) -> None:
    async def scene(loop: Resolver) -> None:
        loop.addresses = addresses
        async with listening() as port:
            assert (await Dialer(next_seconds=600.0).dial(Line, "provider", port, None)).reached == HERE

    in_loop(scene)


def test_an_address_that_swallows_everything_is_not_waited_for() -> None:
    async def scene(loop: Resolver) -> None:
        loop.addresses = (NOWHERE, HERE)
        async with listening() as port, swallowing(port):
            assert (await Dialer(next_seconds=0.01).dial(Line, "provider", port, None)).reached == HERE

    in_loop(scene)


class OpenLine(asyncio.Protocol):
    """Keeps its transport."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport


@pytest.mark.parametrize("addresses", [(HERE,), (NOWHERE, HERE)])
@pytest.mark.parametrize("factory", [Resolver, uvloop.new_event_loop])
@pytest.mark.parametrize("is_tls", [False, True])
def test_the_kernel_drops_a_connection_whose_peer_is_gone(
    factory: Any, addresses: tuple[str, ...], is_tls: bool, tmp_path: Path
) -> None:
    theirs = self_signed(tmp_path) if is_tls else None
    ours = ssl.create_default_context(cafile=tmp_path / "certificate.pem") if is_tls else None
    if ours is not None:
        ours.check_hostname = False
    user_timeout_ms = SIGNS_OF_LIFE["TCP_KEEPIDLE"] * 2000 if is_tls else 0

    async def scene(loop: Any) -> None:
        host = HERE
        if isinstance(loop, Resolver):
            host, loop.addresses = "provider", addresses
        peers: list[asyncio.StreamWriter] = []
        async with await asyncio.start_server(lambda _, writer: peers.append(writer), HERE, 0, ssl=theirs) as server:
            line = await Dialer().dial(OpenLine, host, int(server.sockets[0].getsockname()[1]), ours)
            open_socket = line.transport.get_extra_info("socket")
            assert open_socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            for name, value in SIGNS_OF_LIFE.items():
                if hasattr(socket, name):
                    assert open_socket.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value
            if USER_TIMEOUT is not None:
                assert open_socket.getsockopt(socket.IPPROTO_TCP, USER_TIMEOUT) == user_timeout_ms
            line.transport.close()
            for peer in peers:
                peer.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(scene(runner.get_loop()))


class Twins(Resolver):
    """Connects to two addresses at the same moment."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses = HERE, NOWHERE
        self.both = asyncio.Barrier(2)
        self.lines: list[MagicMock] = []

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        await self.both.wait()
        self.lines.append(MagicMock(asyncio.Transport))
        return self.lines[-1], Line()


def test_of_two_that_answer_at_once_the_one_that_is_not_used_is_closed() -> None:
    with asyncio.Runner(loop_factory=Twins) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Twins)
        runner.run(Dialer(next_seconds=0.0).dial(Line, "provider", 1, None))
        assert sum(line.abort.call_count for line in loop.lines) == len(loop.lines) - 1 == 1


def test_what_the_last_address_fails_with_is_raised() -> None:
    async def scene(loop: Resolver) -> None:
        loop.addresses = (NOWHERE, HERE)
        with socket.socket() as unused:
            unused.bind((HERE, 0))
            with pytest.raises(ConnectionRefusedError):
                await Dialer().dial(Line, "provider", unused.getsockname()[1], None)

    in_loop(scene)


def test_many_who_wait_ask_once_and_one_who_leaves_spoils_it_for_nobody() -> None:
    async def scene(loop: Resolver) -> None:
        loop.answers.clear()
        async with listening() as port:
            dialer = Dialer()
            dialing = [asyncio.create_task(dialer.dial(Line, "provider", port, None)) for _ in range(20)]
            while not loop.asked:
                await asyncio.sleep(0)
            dialing.pop(0).cancel()
            loop.answers.set()
            assert {line.reached for line in await asyncio.gather(*dialing)} == {HERE}
            assert loop.asked == 1
            await dialer.dial(Line, "provider", port, None)
            assert loop.asked == 2, "what it said is not kept while it can be asked"

    in_loop(scene)


def test_while_the_resolver_fails_the_last_addresses_serve_and_not_for_ever() -> None:
    async def scene(loop: Resolver) -> None:
        async with listening() as port:
            dialer = Dialer()
            await dialer.dial(Line, "provider", port, None)
            loop.is_down = True
            assert (await dialer.dial(Line, "provider", port, None)).reached == HERE
            with pytest.raises(socket.gaierror):
                await dialer.dial(Line, "another", port, None)
            loop.ahead = STALE_SECONDS + 10
            with pytest.raises(socket.gaierror):
                await dialer.dial(Line, "provider", port, None)

    in_loop(scene)


def test_a_resolver_that_is_slow_is_not_waited_for_once_addresses_are_known() -> None:
    async def scene(loop: Resolver) -> None:
        async with listening() as port:
            dialer = Dialer(answer_seconds=0.01)
            loop.answers.clear()
            first = asyncio.create_task(dialer.dial(Line, "provider", port, None))
            while not loop.asked:
                await asyncio.sleep(0)
            first.cancel()  # its time was up; what it asked for is still learnt
            loop.answers.set()
            await dialer.dial(Line, "provider", port, None)
            loop.answers.clear()
            assert (await dialer.dial(Line, "provider", port, None)).reached == HERE
            loop.ahead = STALE_SECONDS + 10
            late = asyncio.create_task(dialer.dial(Line, "provider", port, None))
            await asyncio.wait((late,), timeout=0.05)
            assert not late.done(), "what was known is too old"
            loop.answers.set()
            assert (await late).reached == HERE

    in_loop(scene)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EMFILE, "Too many open files"), True),
        (OSError(errno.ENFILE, "Too many open files in system"), True),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), False),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), False),
        (TimeoutError(), False),
    ],
)
def test_what_failed_here_is_told_from_what_failed_there(error: Exception, expected: bool) -> None:
    assert is_for_want_of_files(error) is expected
