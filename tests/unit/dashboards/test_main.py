"""The web UI's process: a child of `breakeven serve` that must not outlive it, and its needs from the system."""

import errno
import os
import subprocess
import sys

import pytest

from dashboards.__main__ import main, why_no_semaphore

PARENT = """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-m", "dashboards", "--port", "0", "--exit-with-parent", str(os.getpid())])
print("started", flush=True)
sys.stdin.read()
"""


def test_an_orphan_stops_by_itself() -> None:
    """Parent and child share a pipe, which ends when both have ended."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"started\n"
    parent.kill()
    parent.wait()
    parent.stdin.close()
    assert parent.stdout.read() == b""
    parent.stdout.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--port", "99999"), "'99999' is not a port from 0 to 65535"),
        (("--port", "-1"), "'-1' is not a port"),
        (("--gateway", "gateway:8080"), "'gateway:8080' is not an address such as http://127.0.0.1:8080"),
        (("--gateway", "http://["), "'http://[' is not an address"),
        (("--answer-seconds", "nan"), "'nan' is not a number of seconds above 0"),
    ],
)
def test_an_argument_that_means_nothing_ends_it_before_it_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    """It listened on port 34463 when it was told 99999."""
    monkeypatch.setattr(sys, "argv", ["dashboards", *arguments])
    with pytest.raises(SystemExit):
        main()
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES, errno.ENOENT])
def test_what_shared_memory_lacks_is_told_with_what_to_mount(number: int) -> None:
    """The process used to end with the page framework's traceback, again and again."""

    def make() -> object:
        raise OSError(number, os.strerror(number))

    assert f"{os.strerror(number)}). Mount a tmpfs at /dev/shm" in str(why_no_semaphore(make))


def test_where_there_is_shared_memory_nothing_is_told() -> None:
    assert why_no_semaphore() is None
