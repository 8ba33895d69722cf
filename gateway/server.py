"""Runs the HTTP application: one listening socket, orderly shutdown on SIGINT and SIGTERM."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Generator

import uvicorn
from starlette.types import ASGIApp

from gateway.errors import StateError

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 75


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises StateError with what to do when the port is taken or may not be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise StateError(
            f"cannot listen on {host}:{port}: {error.strerror}; stop the other program or choose another port, "
            f"as in `make serve PORT={port + 1}`"
        ) from error
    listener.listen(BACKLOG)
    return listener


def free_port(prefer: int = 0) -> int:
    """A port of the loopback interface that was free a moment ago; `prefer` if it was."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", prefer if prefer < 65536 else 0))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _Server(uvicorn.Server):
    """Leaves signals to us: the gateway has more to stop than its HTTP server."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def serve_until_stopped(app: ASGIApp, listener: socket.socket, *, drain_seconds: int) -> None:
    """Serve until SIGINT or SIGTERM, then let requests finish for `drain_seconds`. A second signal cuts that short."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=drain_seconds,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        server_header=False,
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        await server.serve(sockets=[listener])
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
