"""What a container leaves to its processes: control groups of Linux, of both versions. No torch.

Such a limit shows neither in /proc/meminfo nor in the number of cores: a process that exceeds the memory is killed
without a word, one with a thread for each core of the machine is stopped for most of the time.
https://docs.kernel.org/admin-guide/cgroup-v2.html and https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
UNLIMITED_BYTES: Final = 1 << 60
"""Version 1 has a number for no limit: the largest, rounded down to whole pages."""


@dataclass(frozen=True, slots=True)
class Group:
    """The folders with the limits of this process; in version 2 they are the same."""

    memory: Path
    cpu: Path


def own_group(told: Path = Path("/proc/self/cgroup"), root: Path = ROOT) -> Group:
    """A container sees its own group as the root, though it may be told the machine's path; a systemd service is in one
    below."""
    lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
    paths: dict[str, str] = {}  # by controller; of version 2 by ''
    for _, controllers, path in (line.split(":", 2) for line in lines):
        paths |= dict.fromkeys(controllers.split(","), path.lstrip("/"))

    def folder(controller: str) -> Path:
        mounted = root / controller if controller in paths else root
        own = mounted / paths.get(controller, paths.get("", ""))
        return own if own.is_dir() else mounted

    return Group(folder("memory"), folder("cpu"))


def memory_left(group: Group) -> int | None:
    """Bytes up to the limit, files in the cache not counted, as these make room; None if there is no limit."""
    limit = _words(group.memory, "memory.max", "memory.limit_in_bytes")
    used = _words(group.memory, "memory.current", "memory.usage_in_bytes")
    if not limit or not used or not limit[0].isdecimal() or int(limit[0]) >= UNLIMITED_BYTES:
        return None
    words = _words(group.memory, "memory.stat")
    stat = dict(zip(words[::2], words[1::2], strict=False))
    idle = stat.get("total_inactive_file", stat.get("inactive_file", "0"))
    return max(0, int(limit[0]) - int(used[0]) + int(idle))


def cores(group: Group) -> int | None:
    """Cores' worth of time, rounded up; None if there is no limit."""
    quota = _words(group.cpu, "cpu.max")
    quota = quota or _words(group.cpu, "cpu.cfs_quota_us") + _words(group.cpu, "cpu.cfs_period_us")
    if len(quota) != 2 or not quota[0].isdecimal():
        return None
    return max(1, -(-int(quota[0]) // int(quota[1])))


def _words(folder: Path, *names: str) -> list[str]:
    """Of the first file that can be read."""
    for name in names:
        try:
            return (folder / name).read_text(encoding="ascii").split()
        except OSError:
            continue
    return []
