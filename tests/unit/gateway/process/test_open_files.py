"""Limits of open files, each test in a process of its own: a limit that was lowered cannot be raised again."""

import subprocess
import sys

import pytest

from gateway.errors import StateError
from gateway.process.open_files import LEAST, OWN, PER_CALL, calls_within, require_open_files

ALLOW = """
import resource, sys
from gateway.process.open_files import allow_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(allow_open_files(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [(256, 1000, "1000 1000 1000"), (256, 256, "256 256 256"), (900, 1000, "1000 1000 1000")],
)
def test_as_many_as_the_system_lets_us_have(soft: int, hard: int, expected: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALLOW, str(soft), str(hard)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


@pytest.mark.parametrize(("files", "calls"), [(OWN + 2000 * PER_CALL, 2000), (256, 64), (OWN, 1), (10, 1)])
def test_a_call_has_two_connections(files: int, calls: int) -> None:
    assert calls_within(files) == calls


def test_too_few_to_start_with_are_told_with_what_to_raise() -> None:
    """It used to be a traceback, or an engine that could never be started."""
    require_open_files(LEAST)
    with pytest.raises(StateError, match=r"may open 24 files, and needs 64 at least: raise the limit \(`ulimit -Hn`"):
        require_open_files(24)
