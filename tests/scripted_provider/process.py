"""The provider in a process of its own, for tests whose own process is busy."""

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

HOLDS = "holds"


@dataclass(frozen=True, slots=True)
class ProviderProcess:
    url: str
    _process: subprocess.Popen[str]

    def hold(self) -> None:
        """Holds answers until `go_on`, after as many more as it was started with."""
        self._process.send_signal(signal.SIGUSR1)
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == HOLDS

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGUSR2)


@contextmanager
def provider_process(*arguments: str) -> Generator[ProviderProcess]:
    """`arguments` are those of `python -m tests.scripted_provider`."""
    command = [sys.executable, "-m", "tests.scripted_provider", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield ProviderProcess(process.stdout.readline().strip(), process)
        finally:
            process.terminate()
