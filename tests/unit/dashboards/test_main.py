"""The web UI's process: a child of `breakeven serve` that must not outlive it."""

import subprocess
import sys

PARENT = """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-m", "dashboards", "--port", "0", "--exit-with-parent", str(os.getpid())])
print("started", flush=True)
sys.stdin.read()
"""


def test_an_orphan_stops_by_itself() -> None:
    """Parent and child hold the one pipe: it ends when both have ended."""
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
