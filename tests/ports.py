"""Ports of the loopback interface that stay free until their child process has them, and ports that refuse.

A port that the kernel hands out for 0 may be handed out again before the child binds it: to another test's server, in
another process of the same run. These lie below what the kernel hands out, and a UDP socket of the same number, open as
long as this process lives, tells every other test process that the number is taken.
"""

import contextlib
import socket
from collections.abc import Generator
from typing import Final

FIRST, LAST = 20_000, 32_000
_KEPT: Final[list[socket.socket]] = []


def free_port() -> int:
    """Nobody else who asks here gets the same one."""
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
    """One on which nobody listens while the block runs, nor can: it is taken."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        yield int(silent.getsockname()[1])
