"""One process at a time: which is refused, and that a dead process holds nothing."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.errors import StateError
from gateway.process.sole_use import sole_use

HOLD = """
import signal, sys
from pathlib import Path
from gateway.process.sole_use import sole_use
with sole_use(Path(sys.argv[1]), of="it", advice="none"):
    print("held", flush=True)
    signal.pause()
"""


def test_the_second_is_told_who_the_first_is_and_the_third_comes_after_both(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with sole_use(file, of="the home", advice="stop that one"):
        with (
            pytest.raises(StateError, match=f"the home is in use by process {os.getpid()}; stop that one"),
            sole_use(file, of="the home", advice="stop that one"),
        ):
            pytest.fail("two at once")
        assert file.read_text() == str(os.getpid()), "whoever was refused leaves no trace"
    with sole_use(file, of="the home", advice=""):
        pass


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(file)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StateError, match=f"process {holder.pid};"), sole_use(file, of="it", advice=""):
            pytest.fail("two at once")
        holder.kill()
    with sole_use(file, of="it", advice=""):
        assert file.read_text() == str(os.getpid())


def test_on_a_full_disk_it_is_held_by_somebody(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    try:
        with (
            sole_use(file, of="it", advice=""),
            pytest.raises(StateError, match="that just started"),
            sole_use(file, of="it", advice=""),
        ):
            pytest.fail("two at once")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_a_place_that_cannot_be_locked_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="make it writable"), sole_use(tmp_path / "no" / "lock", of="it", advice=""):
        pytest.fail("without a lock")
