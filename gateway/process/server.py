"""Runs the HTTP application: listening socket, timeouts for slow clients, orderly shutdown on SIGINT and SIGTERM."""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Generator

import uvicorn
from starlette.types import ASGIApp

from gateway.errors import StateError
from gateway.process.patient_protocol import patient_protocol
from gateway.process.socket_protocol import Sockets
from gateway.process.stop_signals import TOLD_TO_STOP, stop_at_hangup

BACKLOG = 2048
ACCEPTED_PER_TURN = 16
"""New connections per turn of the loop. uvloop accepts one per listening socket: with 256 busy connections, when a turn
takes several milliseconds, a burst of callers would wait seconds to be accepted."""
KEEP_ALIVE_SECONDS = 75
SLOW_CLIENT_SECONDS = 60.0
DRAIN_SECONDS = 30
_CANCELLED = "Cancel %s running task(s), timeout graceful shutdown exceeded"


def bind(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """A listening socket; with `is_shared` one of several on the port, among which the kernel distributes connections.

    Raises StateError with advice when the port is taken or not permitted.
    """
    listener = _bound(host, port, is_shared=is_shared)
    listener.listen(BACKLOG)
    return listener


def reserve(host: str, port: int) -> socket.socket:
    """Hold a port for workers that will `bind` it shared, without accepting connections. Raises StateError.

    The port is first bound exclusively: otherwise another fleet that shares it would be joined unnoticed.
    """
    with _bound(host, port, is_shared=False) as alone:
        port = int(alone.getsockname()[1])
    return _bound(host, port, is_shared=True)


def _bound(host: str, port: int, *, is_shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With an explicit protocol: asyncio's own loop sets TCP_NODELAY only on sockets that say they are TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise StateError(f"cannot listen on {host}:{port}: {error.strerror}; {_advice(error, port)}") from error
    return listener


def _advice(error: OSError, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        # Not the next port: where a gateway has this one, its web UI has that.
        other = free_port(prefer=port + 10)
        return f"stop its owner or take another port: `breakeven serve --port {other}` or `make serve PORT={other}`"
    if error.errno == errno.EACCES:
        return "choose a port above 1023: `breakeven serve --port 8080` or `make serve PORT=8080`"
    return "choose an address of this machine: 127.0.0.1 for itself alone, 0.0.0.0 for its network"


def free_port(prefer: int = 0) -> int:
    """A port of the loopback interface that was free a moment ago; preferably `prefer`."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers bind: otherwise connections in TIME_WAIT would hold the port for a minute.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", prefer if prefer < 65536 else 0))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where available; it is not on Windows."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class _Server(uvicorn.Server):
    """Leaves signals to us: the gateway has more to stop than its HTTP server."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _in_plain_words(record: logging.LogRecord) -> bool:
    """Of requests that are cut off at the end uvicorn logs how many they are, and then a traceback for each."""
    if record.msg == _CANCELLED:
        record.msg = "requests that had not ended in time and were cut off: %s"
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


async def serve_until_stopped(
    app: ASGIApp,
    listener: socket.socket,
    *,
    drain_seconds: int = DRAIN_SECONDS,
    slow_client_seconds: float = SLOW_CLIENT_SECONDS,
    sockets: Sockets | None = None,
    may_hurry: bool = True,
    told_again: Callable[[], object] = lambda: None,
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP, then let requests finish for up to `drain_seconds`.

    With `may_hurry` a second SIGINT or SIGTERM cuts that short. After the last request further signals only call
    `told_again` until the event loop ends: no signal interrupts what is being written then.
    """
    config = uvicorn.Config(
        app,
        http=patient_protocol(slow_client_seconds, sockets=sockets),
        ws="none",  # they are opened by our protocol, where `sockets` takes them
        log_config=None,  # log lines keep our format
        log_level="error",  # otherwise anybody could fill the log with warnings about invalid requests
        access_log=False,
        lifespan="off",
        proxy_headers=False,  # the application handles them where they matter
        timeout_graceful_shutdown=drain_seconds,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        server_header=False,
    )
    logging.getLogger("uvicorn.error").addFilter(_in_plain_words)
    server = _Server(config)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.force_exit = may_hurry and server.should_exit
        server.should_exit = True

    def hang_up() -> None:
        server.should_exit = True

    for number in TOLD_TO_STOP:
        loop.add_signal_handler(number, stop)
    stop_at_hangup(loop, hang_up)
    same = [listener.dup() for _ in range(ACCEPTED_PER_TURN - 1)]
    try:
        await server.serve(sockets=[listener, *same])
    finally:
        for number in TOLD_TO_STOP:
            loop.add_signal_handler(number, told_again)
