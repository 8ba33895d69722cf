"""`pytest --workers N`: the tests run in N copies of the process that collected them, a group of files at a time.

New processes, as pytest-xdist starts them, would each collect ten thousand tests and import every library that any of
them needs (docs/decisions/what-the-tests-cost.md). Knows nothing of any test.
"""

import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from multiprocessing.sharedctypes import Synchronized
from typing import Any, TypeAlias

import pytest
from _pytest import runner, tmpdir
from _pytest.capture import CaptureManager
from _pytest.config import create_terminal_writer

COPIES = get_context("fork")
Reports: TypeAlias = "Connection[dict[str, Any], dict[str, Any]]"


@dataclass(slots=True)
class Worker:
    """A worker as seen by the process that reads its reports."""

    process: ForkProcess
    runs: str = "no test yet"


def run_forked(session: pytest.Session, workers: int, group_of: Callable[[pytest.Item], str]) -> None:
    """Runs all items of the session; those of one group in one process, groups in the order of their first items.

    Raises Session.Failed when enough tests have failed (`--exitfirst`, `--maxfail`) or a worker died.
    """
    groups: dict[str, list[pytest.Item]] = {}
    for item in session.items:
        groups.setdefault(group_of(item), []).append(item)
    taken = COPIES.Value("i", 0)
    waiting: dict[Reports, Worker] = {}
    for _ in range(workers):
        reports, tells = COPIES.Pipe(duplex=False)
        process = COPIES.Process(target=_work, args=(session, _take(list(groups.values()), taken), tells))
        process.start()
        tells.close()
        waiting[reports] = Worker(process)
    try:
        while waiting:
            for ready in wait(list(waiting)):
                assert isinstance(ready, Connection)
                _hear(session, waiting, ready)
    except Exception:  # whatever it was, nobody reads the other workers' reports any longer
        for worker in waiting.values():
            assert worker.process.pid is not None
            os.kill(worker.process.pid, signal.SIGINT)  # not SIGTERM, which would skip its fixtures' cleanup
        raise
    finally:
        for reports, worker in waiting.items():
            reports.close()  # a worker still reporting would wait for a reader forever, and we for it
            worker.process.join()


def _hear(session: pytest.Session, waiting: dict[Reports, Worker], reports: Reports) -> None:
    worker, hook = waiting[reports], session.config.hook
    try:
        told = reports.recv()
    except EOFError:
        del waiting[reports]
        worker.process.join()
        if worker.process.exitcode != 0:
            session.shouldfail = f"a worker ended with {worker.process.exitcode} while it ran {worker.runs}"
            raise session.Failed(session.shouldfail) from None
        return
    if "begins" in told:
        worker.runs = told["begins"]
        return
    hook.pytest_runtest_logreport(report=hook.pytest_report_from_serializable(config=session.config, data=told))
    if session.shouldfail:
        raise session.Failed(session.shouldfail)


def _take(groups: Sequence[list[pytest.Item]], taken: "Synchronized[int]") -> Iterator[pytest.Item]:
    """Yields the items of one group after another, of those that no other worker has taken."""
    while True:
        with taken.get_lock():
            number = taken.value
            taken.value += 1
        if number >= len(groups):
            return
        yield from groups[number]


def _work(session: pytest.Session, items: Iterator[pytest.Item], tells: Reports) -> None:
    """Runs in the forked copy."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell inherit it ignored
    random.seed()
    config = session.config
    capture = config.pluginmanager.getplugin("capturemanager")
    assert isinstance(capture, CaptureManager)
    # Forked processes share open files, so from here on output is captured in a file of our own.
    capture.stop_global_capturing()
    capture.start_global_capturing()
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(Teller(config, tells), "terminalreporter")
    try:
        item = next(items, None)
        while item is not None:
            following = next(items, None)
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following
    finally:
        runner.pytest_sessionfinish(session)  # cleans up after an interrupted test: servers, directories, browsers
        # Each worker makes a base directory of its own: without this it would stay, locked, for three days.
        tmpdir.pytest_sessionfinish(session, 1 if session.testsfailed else 0)
        tells.close()
        capture.suspend_global_capture(in_=True)  # so that an error that ends the worker is printed


class Teller:
    """Reports, from a worker, which test starts and how it ends."""

    def __init__(self, config: pytest.Config, tells: Reports) -> None:
        self.config = config
        self.tells = tells
        self._tw = create_terminal_writer(config)  # what a plugin tells the terminal is captured: pytest-timeout does

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.tells.send({"begins": nodeid})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tells.send(self.config.hook.pytest_report_to_serializable(config=self.config, report=report))
