"""The provider in a process of its own, for tests whose own has enough to do."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def provider_process(*arguments: str) -> Generator[str]:
    """Its address. `arguments` are those of `python -m tests.scripted_provider`."""
    command = [sys.executable, "-m", "tests.scripted_provider", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()
