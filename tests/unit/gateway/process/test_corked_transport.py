import asyncio
import socket
from collections.abc import Callable
from typing import cast

import pytest
import uvloop

from gateway.process.corked_transport import MOST_BYTES, CorkedTransport
from tests.virtual_time import run


class Recorder(asyncio.Transport):
    """A transport that records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.calls: list[str] = []
        self.untaken = 0

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.written.append(data)

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    def is_closing(self) -> bool:
        return bool(self.calls)

    def get_write_buffer_size(self) -> int:
        return self.untaken


async def test_what_is_written_in_one_turn_leaves_together_and_in_order() -> None:
    inner = Recorder()
    corked = CorkedTransport(inner, last_seconds=60.0)
    corked.write(b"head ")
    corked.write(b"body")
    assert inner.written == []
    await asyncio.sleep(0)
    assert inner.written == [b"head body"]
    corked.write(b"next")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert inner.written == [b"head body", b"next"]


async def test_much_leaves_at_once_so_that_the_real_buffer_can_push_back() -> None:
    inner = Recorder()
    corked = CorkedTransport(inner, last_seconds=60.0)
    corked.write(b"a")
    corked.write(b"b" * MOST_BYTES)
    assert inner.written == [b"a" + b"b" * MOST_BYTES]
    await asyncio.sleep(0)
    assert len(inner.written) == 1


async def test_closing_sends_what_was_held_back_and_aborting_does_not() -> None:
    closed, aborted = Recorder(), Recorder()
    for inner, end in ((closed, CorkedTransport.close), (aborted, CorkedTransport.abort)):
        corked = CorkedTransport(inner, last_seconds=60.0)
        corked.write(b"last words")
        end(corked)
        assert corked.is_closing()
        await asyncio.sleep(0)
    assert (closed.written, closed.calls) == ([b"last words"], ["close"])
    assert (aborted.written, aborted.calls) == ([], ["abort"])


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_aborting_drops_what_the_system_has_not_sent_either(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """It held megabytes for every dropped client for as long as that read a byte now and then."""

    class Much(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            corked = CorkedTransport(cast(asyncio.Transport, transport), last_seconds=60.0)
            corked.write(bytes(1 << 23))
            corked.close()
            asyncio.get_running_loop().call_later(0.01, corked.abort)

    async def read_all() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Much, "127.0.0.1", 0)
        async with server:
            with socket.socket() as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.setblocking(False)
                await loop.sock_connect(slow, server.sockets[0].getsockname())
                await asyncio.sleep(0.05)
                while await loop.sock_recv(slow, 1 << 16):
                    pass

    with asyncio.Runner(loop_factory=make_loop) as runner, pytest.raises(ConnectionResetError):
        runner.run(read_all())


@pytest.mark.parametrize(("untaken", "calls"), [(0, ["close"]), (1, ["close", "abort"])])
def test_who_does_not_take_the_last_of_an_answer_is_not_waited_for_when_it_is_closed(
    untaken: int, calls: list[str]
) -> None:
    async def scene() -> list[str]:
        inner = Recorder()
        inner.untaken = untaken
        corked = CorkedTransport(inner, last_seconds=60.0)
        corked.close()
        corked.close()
        await asyncio.sleep(59)
        assert inner.calls == ["close"]
        await asyncio.sleep(2)
        return inner.calls

    assert run(scene) == calls


async def test_nothing_is_written_to_a_connection_that_was_lost_in_between() -> None:
    inner = Recorder()
    corked = CorkedTransport(inner, last_seconds=60.0)
    corked.write(b"too late")
    inner.close()
    await asyncio.sleep(0)
    assert inner.written == []


async def test_it_passes_on_what_a_server_asks_of_the_real_transport() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        protocol = asyncio.Protocol()
        inner, _ = await asyncio.get_running_loop().create_connection(lambda: protocol, sock=ours)
        corked = CorkedTransport(inner, last_seconds=60.0)
        corked.pause_reading()
        assert not inner.is_reading()
        corked.resume_reading()
        assert inner.is_reading()
        assert corked.get_protocol() is protocol
        other = asyncio.Protocol()
        corked.set_protocol(other)
        assert inner.get_protocol() is other
        assert corked.get_extra_info("socket") is not None
        assert corked.get_extra_info("nothing", 1) == 1
        corked.abort()
