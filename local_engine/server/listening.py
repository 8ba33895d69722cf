"""Binds the server's port, before torch is imported, which takes a second, and any weights are fetched or loaded."""

import contextlib
import socket
from collections.abc import Generator

from local_engine.errors import EngineError


def bind(host: str, port: int) -> socket.socket:
    """Raises EngineError if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with listening_told(bound, host, port):
        bound.bind((host, port))
    return bound


@contextlib.contextmanager
def listening_told(bound: socket.socket, host: str, port: int) -> Generator[None]:
    try:
        yield
    except OSError as error:
        bound.close()
        raise EngineError(f"Cannot listen on {host}:{port} ({error.strerror}).") from error
