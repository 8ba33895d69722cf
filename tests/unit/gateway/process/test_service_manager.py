"""What systemd is sent, over a socket like its own."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from gateway.process.service_manager import keep_watchdog, tell
from gateway.process.tasks import end_tasks


@contextlib.contextmanager
def manager(address: str | Path) -> Generator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(address))
        listening.setblocking(False)
        yield listening


def test_it_is_told_at_a_path_and_at_an_abstract_address(tmp_path: Path) -> None:
    with manager(tmp_path / "notify") as heard:
        tell("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert heard.recv(100) == b"READY=1"
    with manager(f"\0breakeven-{os.getpid()}") as heard:
        tell("STOPPING=1", {"NOTIFY_SOCKET": f"@breakeven-{os.getpid()}"})
        assert heard.recv(100) == b"STOPPING=1"


def test_nobody_who_asks_and_a_socket_that_is_gone_are_no_errors(tmp_path: Path) -> None:
    tell("READY=1", {})
    tell("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "gone")})


async def test_the_watchdog_hears_of_us_again_and_again_while_the_loop_turns(tmp_path: Path) -> None:
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "3000", "WATCHDOG_PID": str(os.getpid())}
    with manager(tmp_path / "notify") as heard:
        beating = asyncio.create_task(keep_watchdog(environ))
        for _ in range(3):
            assert await asyncio.get_running_loop().sock_recv(heard, 100) == b"WATCHDOG=1"
        await end_tasks([beating])


async def test_a_watchdog_of_somebody_else_or_none_is_left_alone(tmp_path: Path) -> None:
    with manager(tmp_path / "notify") as heard:
        where = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        for more in ({}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "3000", "WATCHDOG_PID": "1"}):
            await keep_watchdog({**where, **more})
        with pytest.raises(BlockingIOError):
            heard.recv(100)
