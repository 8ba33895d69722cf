import mmap
import re
import subprocess
import sys
from pathlib import Path

import pytest

from native.huge_pages import LARGE, SETTING, gather

MIB = 1 << 20
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def in_large_pages() -> int:
    """Bytes of this process in huge pages."""
    [kibibytes] = re.findall(r"AnonHugePages:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text())
    return int(kibibytes) * 1024


def resident() -> int:
    [kibibytes] = re.findall(r"Rss:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text())
    return int(kibibytes) * 1024


@pytest.fixture
def _has_large_pages() -> None:
    """Skips if this system provides none: then there is nothing to gather."""
    try:
        setting = SETTING.read_text()
        with mmap.mmap(-1, 4 * LARGE, flags=PRIVATE) as probe:
            probe.write(b"x" * len(probe))
            gathered = gather()
    except OSError as error:
        pytest.skip(f"no large pages on this system: {error}")
    if "[never]" in setting or not gathered:
        pytest.skip("this kernel gives no large pages when asked (Linux 6.1 or newer does)")


@pytest.mark.usefixtures("_has_large_pages")
def test_what_is_filled_moves_into_large_pages_and_stays_what_it_was() -> None:
    before = in_large_pages()
    with mmap.mmap(-1, 32 * MIB, flags=PRIVATE) as memory:
        content = bytes(range(256)) * (32 * MIB // 256)
        memory.write(content)
        assert gather() >= 16 * MIB  # less than all: the system may have few large pages left
        assert in_large_pages() - before >= 16 * MIB
        assert memory[:] == content


@pytest.mark.usefixtures("_has_large_pages")
def test_memory_that_nobody_used_is_not_taken() -> None:
    with mmap.mmap(-1, 64 * MIB, flags=PRIVATE) as memory:
        for start in range(0, 64 * MIB, 4 * mmap.PAGESIZE):
            memory[start] = 1
        before = resident()
        gather()
        assert resident() - before < 24 * MIB


def test_whoever_told_the_system_never_is_heard(tmp_path: Path) -> None:
    setting = tmp_path / "enabled"
    setting.write_text("always madvise [never]\n")
    assert gather(setting) == 0


def test_a_system_that_says_nothing_of_large_pages_has_none(tmp_path: Path) -> None:
    assert gather(tmp_path / "enabled") == 0


def test_a_process_that_gathered_goes_on() -> None:
    code = "import json; from native.huge_pages import gather; gather(); print(json.dumps([1]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[1]\n"), done.stderr
