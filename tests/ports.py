"""Ports of the loopback interface that stay free until a child process binds them, and ports that refuse connections.

A port that the kernel assigned for 0 may be assigned again before the child binds it, to a server of another test
process. These ports are below the kernel's range, and are reserved by a UDP socket of the same number, which stays open
as long as this process lives.
"""

import contextlib
import socket
from collections.abc import Generator
from typing import Final

FIRST, LAST = 20_000, 32_000
_KEPT: Final[list[socket.socket]] = []


def free_port() -> int:
    """A port that no other caller gets, in any test process."""
    for port in range(FIRST, LAST):
        token = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            token.bind(("127.0.0.1", port))
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            token.close()
            continue
        _KEPT.append(token)
        return port
    raise AssertionError(f"every port from {FIRST} to {LAST} of 127.0.0.1 is taken")


@contextlib.contextmanager
def refusing_port() -> Generator[int]:
    """A port that is bound for the duration of the block, but on which nothing listens."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        yield int(silent.getsockname()[1])
