"""What a container leaves to its processes: control groups of Linux, version 2. No torch.

Such a limit shows neither in /proc/meminfo nor in the number of cores: a process that exceeds the memory is killed
without a word, one with a thread for each core of the machine is stopped for most of the time.
https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")


def own_group(told: Path = Path("/proc/self/cgroup")) -> Path:
    """The folder of this process's group: a container sees its own as the root, a systemd service is in one below."""
    lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
    return ROOT / next((line[4:] for line in lines if line.startswith("0::/")), "")


def memory_left(group: Path) -> int | None:
    """Bytes up to the limit, files in the cache not counted, as these make room; None if there is no limit."""
    limit, used = _words(group / "memory.max"), _words(group / "memory.current")
    if not limit or not used or not limit[0].isdecimal():
        return None
    stat = _words(group / "memory.stat")
    idle = dict(zip(stat[::2], stat[1::2], strict=False)).get("inactive_file", "0")
    return max(0, int(limit[0]) - int(used[0]) + int(idle))


def cores(group: Path) -> int | None:
    """Cores' worth of time, rounded up; None if there is no limit."""
    quota = _words(group / "cpu.max")
    if len(quota) != 2 or not quota[0].isdecimal():
        return None
    return max(1, -(-int(quota[0]) // int(quota[1])))


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").split()
    except OSError:
        return []
