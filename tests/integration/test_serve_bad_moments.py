"""`breakeven serve` when its terminal or the reader of its output disappears, and with a second one in its home."""

import contextlib
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.integration.served_home import command_of, environment_of, write_home
from tests.ports import free_port

pytestmark = pytest.mark.integration
PATIENCE_SECONDS = 300
FAILING_DISK = """\
import errno, os
from pathlib import Path
from gateway.cli import main

def refused(*arguments):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

def sync(descriptor, sync=os.fdatasync, broken=Path(os.environ["BREAKEVEN_HOME"], "broken")):
    if broken.exists():
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    sync(descriptor)

os.eventfd, os.fdatasync = refused, sync
main()
"""
"""`breakeven` with a disk whose syncs fail while there is a file `broken` in the home, and without the kernel's
queue."""


@pytest.fixture
def home(provider: str, tmp_path: Path) -> Path:
    return write_home(tmp_path, provider)


def read_until_ready(pipe: int) -> str:
    said = b""
    while b"Ready." not in said:
        part = os.read(pipe, 65_536)
        assert part, said
        said += part
    return said.decode()


def booked(home: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(home / "breakeven.db", timeout=PATIENCE_SECONDS)) as connection:
        found = connection.execute("SELECT status FROM entries JOIN dimensions ON dimensions.id = dimension_id")
        return [status for (status,) in found]


def until_booked(home: Path, statuses: list[str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := booked(home)) != statuses:
        assert time.monotonic() < deadline, f"booked are {found}"
        time.sleep(0.05)


@pytest.mark.usefixtures("hangups_end")
def test_a_closed_terminal_ends_it_in_order_and_meanwhile_it_is_alone_in_its_home(home: Path) -> None:
    """The output's reader ends first, and SIGHUP arrives twice, as when a terminal with a shell is closed."""
    environment, port = environment_of(home), free_port()
    reading, written = os.pipe()
    serving = subprocess.Popen(command_of(port), stdout=written, stderr=written, env=environment)
    os.close(written)
    try:
        key = re.search(r"app key.*(bk-\S+)", read_until_ready(reading))
        assert key is not None
        second = subprocess.run(
            command_of(port),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        assert second.returncode == 1
        assert f"{home} is in use by process {serving.pid}; open http://127.0.0.1:{port}, where" in second.stderr
        assert "or stop that one, or give this one a BREAKEVEN_HOME of its own" in second.stderr
        assert "cannot listen" not in second.stderr
        assert "Traceback" not in second.stderr
        os.close(reading)
        asked = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
        headers, url = {"authorization": f"Bearer {key[1]}"}, f"http://127.0.0.1:{port}/v1/chat/completions"
        assert httpx.post(url, json=asked, headers=headers, timeout=PATIENCE_SECONDS).status_code == 200
        until_booked(home, ["completed"])  # stopping waits twenty seconds for the writer to start, but it runs already
        with httpx.stream("POST", url, json=asked, headers=headers, timeout=PATIENCE_SECONDS) as answer:
            pieces = answer.iter_text()
            next(pieces)
            serving.send_signal(signal.SIGHUP)
            serving.send_signal(signal.SIGHUP)
            assert "".join(pieces).rstrip().endswith("data: [DONE]")
        assert serving.wait(PATIENCE_SECONDS) == 0
    finally:
        serving.kill()
        serving.wait()
    assert booked(home) == ["completed"] * 2, "shipped before it ended"


def test_output_that_nobody_reads_holds_up_no_answer_and_no_end(home: Path) -> None:
    """As with a terminal after Ctrl-S, a pager, or a hanging log collector: every failing call writes a line."""
    broken = (home / "rules.yaml").read_text("utf-8").replace("{from: [plain]", "{from: [broken]")
    (home / "rules.yaml").write_text(
        broken.replace(
            "rules:\n", "  broken: {backend: nobody, upstream_model: plain, context_window: 1000}\nrules:\n"
        ),
        "utf-8",
    )
    with (home / "breakeven.yaml").open("a", encoding="utf-8") as configuration:
        configuration.write(f'  nobody: {{base_url: "http://127.0.0.1:{free_port()}/v1"}}\n')
    port = free_port()
    reading, written = os.pipe()
    serving = subprocess.Popen(command_of(port), stdout=written, stderr=written, env=environment_of(home))
    try:
        key = re.search(r"app key.*(bk-\S+)", read_until_ready(reading))
        assert key is not None
        os.set_blocking(written, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(written, b"x" * 1024):
                pass
        os.set_blocking(written, True)
        headers, url = {"authorization": f"Bearer {key[1]}"}, f"http://127.0.0.1:{port}/v1/chat/completions"
        asked = {"model": "auto", "messages": [{"role": "user", "content": "Hi"}]}
        statuses = {httpx.post(url, json=asked, headers=headers, timeout=PATIENCE_SECONDS).status_code for _ in "abc"}
        assert statuses == {502}
        serving.terminate()
        assert serving.wait(PATIENCE_SECONDS) == 0
    finally:
        serving.kill()
        serving.wait()
        os.close(reading)
        os.close(written)


def test_a_disk_that_fails_a_sync_ends_it_as_a_failure(home: Path) -> None:
    """So that a service manager that restarts failed services starts it again, when the disk may work again. It is
    notified of readiness and of stopping."""
    port = free_port()
    command = [sys.executable, "-c", FAILING_DISK, *command_of(port)[3:]]
    reading, written = os.pipe()
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(f"\0breakeven-manager-{port}")
    environment = {**environment_of(home), "NOTIFY_SOCKET": f"@breakeven-manager-{port}"}
    serving = subprocess.Popen(command, stdout=written, stderr=written, env=environment)
    os.close(written)
    try:
        key = re.search(r"app key.*(bk-\S+)", read_until_ready(reading))
        assert key is not None
        headers, url = {"authorization": f"Bearer {key[1]}"}, f"http://127.0.0.1:{port}/v1/chat/completions"
        asked = {"model": "auto", "messages": [{"role": "user", "content": "Hi"}]}
        assert httpx.post(url, json=asked, headers=headers, timeout=PATIENCE_SECONDS).status_code == 200
        (home / "broken").touch()
        assert httpx.post(url, json=asked, headers=headers, timeout=PATIENCE_SECONDS).status_code == 503
        assert serving.wait(PATIENCE_SECONDS) == 1
        assert b"breakeven: The journal stopped after a failed sync" in os.read(reading, 1 << 20)
        manager.setblocking(False)
        assert [manager.recv(100), manager.recv(100)] == [b"READY=1", b"STOPPING=1"]
    finally:
        serving.kill()
        serving.wait()
        manager.close()
        os.close(reading)
    assert booked(home) == ["completed"]
