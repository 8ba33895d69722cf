import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from gateway.process.heartbeat import Patience
from gateway.process.supervisor import COULD_NOT_START, Supervisor


async def until(condition: asyncio.Event) -> None:
    await asyncio.wait_for(condition.wait(), 300)


async def run_until(supervisor: Supervisor, event: asyncio.Event) -> None:
    task = asyncio.create_task(supervisor.run())
    await until(event)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_child_that_dies_is_started_again(tmp_path: Path) -> None:
    again = asyncio.Event()
    supervisor = Supervisor(
        "child",
        [sys.executable, "-c", "print('hello'); raise SystemExit(3)"],
        tmp_path / "log",
        on_restart=lambda _: again.set(),
    )
    await run_until(supervisor, again)
    assert (tmp_path / "log").read_text().startswith("hello")


async def test_a_child_that_cannot_even_be_started_is_tried_again(tmp_path: Path) -> None:
    """The folder of its log exists by the second attempt, as when a full disk has room again."""
    statuses: list[int] = []
    again = asyncio.Event()

    def made(status: int) -> None:
        statuses.append(status)
        (tmp_path / "logs").mkdir(exist_ok=True)
        if len(statuses) > 1:
            again.set()

    command = [sys.executable, "-c", "raise SystemExit(3)"]
    task = asyncio.create_task(Supervisor("child", command, tmp_path / "logs" / "log", on_restart=made).run())
    await until(again)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert statuses[:2] == [COULD_NOT_START, 3]


@pytest.mark.parametrize("ignores", [False, True])
async def test_cancelling_ends_the_child_even_if_it_will_not(tmp_path: Path, ignores: bool) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" if ignores else ""
    code = f"{stubborn}import time; print('up', flush=True); time.sleep(600)"
    supervisor = Supervisor("child", [sys.executable, "-c", code], tmp_path / "log", stop_seconds=0.5)
    task = asyncio.create_task(supervisor.run())
    while not (tmp_path / "log").exists() or b"up" not in (tmp_path / "log").read_bytes():
        await asyncio.sleep(0.01)
    pid = supervisor.pid
    assert pid is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIG_DFL)


async def test_a_child_that_stands_still_is_killed_and_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The child sends one heartbeat and then stops itself, as a debugger or an operator would."""
    statuses: list[int] = []
    again = asyncio.Event()
    code = (
        "import os, signal, sys; assert sys.argv[1] == '--beats'; os.write(int(sys.argv[2]), b'.'); "
        "os.kill(os.getpid(), signal.SIGSTOP)"
    )

    def ended(status: int) -> None:
        statuses.append(status)
        again.set()

    patience = Patience(looks=3, look_seconds=0.01)
    command = [sys.executable, "-c", code]
    supervisor = Supervisor("child", command, tmp_path / "log", patience=patience, on_restart=ended)
    await run_until(supervisor, again)
    assert statuses[0] == -signal.SIGKILL
    assert "has stood still" in caplog.text


async def test_a_child_inherits_what_is_not_withheld(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOMEBODYS_KEY", "x")
    monkeypatch.setenv("HARMLESS", "x")
    ended = asyncio.Event()
    code = "import os; print(*[os.environ.get(name) for name in ('SOMEBODYS_KEY', 'HARMLESS', 'ADDED')])"
    supervisor = Supervisor(
        "child",
        [sys.executable, "-c", code],
        tmp_path / "log",
        {"ADDED": "y"},
        withheld=frozenset({"SOMEBODYS_KEY"}),
        on_restart=lambda _: ended.set(),
    )
    await run_until(supervisor, ended)
    assert (tmp_path / "log").read_text().splitlines()[0] == "None x y"
