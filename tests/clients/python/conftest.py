"""One running gateway for the whole suite, started by Breakeven's own venv; the clients know only its address."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_gateway import Gateway

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def gateway() -> Iterator[Gateway]:
    python = os.environ.get("BREAKEVEN_PYTHON", str(ROOT / ".venv/bin/python"))
    command = [python, "-m", "tests.clients.service"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the service did not start; what it says is above"
        yield Gateway(**json.loads(line))
        assert process.stdin is not None
        process.stdin.close()
        process.wait(300)
