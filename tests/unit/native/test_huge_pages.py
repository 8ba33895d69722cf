"""In processes of their own: the tests' has gigabytes, all of which would be moved."""

import subprocess
import sys
from pathlib import Path

import pytest

from native.huge_pages import gather

ALONE = """
import mmap, re
from pathlib import Path
from native.huge_pages import LARGE, gather

MIB = 1 << 20
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS

def kept(name):
    [kibibytes] = re.findall(name + r":\\s+(\\d+) kB", Path("/proc/self/smaps_rollup").read_text())
    return int(kibibytes) * 1024
"""
HAS_SOME = """
with mmap.mmap(-1, 4 * LARGE, flags=PRIVATE) as probe:
    probe.write(b"x" * len(probe))
    print(gather())
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", ALONE + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def _has_large_pages() -> None:
    """Skips if this system provides none: then there is nothing to gather."""
    if run(HAS_SOME) == "0":
        pytest.skip("this system gives no large pages when asked (Linux 6.1 or newer does)")


@pytest.mark.usefixtures("_has_large_pages")
def test_what_is_filled_moves_into_large_pages_and_stays_what_it_was() -> None:
    """Less than all of it: the system may have few large pages left."""
    run("""
before = kept("AnonHugePages")
with mmap.mmap(-1, 32 * MIB, flags=PRIVATE) as memory:
    content = bytes(range(256)) * (32 * MIB // 256)
    memory.write(content)
    assert gather() >= 16 * MIB
    assert kept("AnonHugePages") - before >= 16 * MIB
    assert memory[:] == content
""")


@pytest.mark.usefixtures("_has_large_pages")
def test_memory_that_nobody_used_is_not_taken() -> None:
    run("""
with mmap.mmap(-1, 64 * MIB, flags=PRIVATE) as memory:
    for start in range(0, 64 * MIB, 4 * mmap.PAGESIZE):
        memory[start] = 1
    before = kept("Rss")
    gather()
    assert kept("Rss") - before < 24 * MIB
""")


def test_whoever_told_the_system_never_is_heard(tmp_path: Path) -> None:
    setting = tmp_path / "enabled"
    setting.write_text("always madvise [never]\n")
    assert gather(setting) == 0


def test_a_system_that_says_nothing_of_large_pages_has_none(tmp_path: Path) -> None:
    assert gather(tmp_path / "enabled") == 0


def test_a_process_that_gathered_goes_on() -> None:
    assert run("import json; gather(); print(json.dumps([1]))") == "[1]"
