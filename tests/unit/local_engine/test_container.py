from pathlib import Path

import pytest

from local_engine import container

GB = 1 << 30


@pytest.mark.parametrize(
    ("files", "memory", "cores"),
    [
        ({"memory.max": "max\n", "memory.current": "5\n", "cpu.max": "max 100000\n"}, None, None),
        ({"memory.max": f"{2 * GB}\n", "memory.current": f"{GB}\n", "cpu.max": "150000 100000\n"}, GB, 2),
        (
            {"memory.max": f"{2 * GB}", "memory.current": f"{2 * GB}", "memory.stat": f"anon 7\ninactive_file {GB}\n"},
            GB,
            None,
        ),
        ({"memory.max": "5", "memory.current": "9", "cpu.max": "1000 100000"}, 0, 1),
        ({"memory.max": "", "cpu.max": ""}, None, None),
        ({}, None, None),
        (
            {
                "memory.limit_in_bytes": f"{2 * GB}\n",
                "memory.usage_in_bytes": f"{2 * GB}\n",
                "memory.stat": f"inactive_file 1\ntotal_inactive_file {GB}\n",
                "cpu.cfs_quota_us": "50000\n",
                "cpu.cfs_period_us": "100000\n",
            },
            GB,
            1,
        ),
        (
            {
                "memory.limit_in_bytes": "9223372036854771712\n",
                "memory.usage_in_bytes": "5\n",
                "cpu.cfs_quota_us": "-1\n",
                "cpu.cfs_period_us": "100000\n",
            },
            None,
            None,
        ),
    ],
)
def test_a_container_is_as_large_as_its_limits(
    tmp_path: Path, files: dict[str, str], memory: int | None, cores: int | None
) -> None:
    """The engine planned with the whole machine's memory, and took a thread for each of its cores."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    group = container.Group(tmp_path, tmp_path)
    assert (container.memory_left(group), container.cores(group)) == (memory, cores)


@pytest.mark.parametrize(
    ("told", "memory", "cpu"),
    [
        ("0::/\n", "", ""),
        ("0::/own\n", "own", "own"),
        ("0::/the/machines\n", "", ""),
        ("4:memory:/own\n2:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n0::/\n", "memory/own", "cpu"),
        ("", "", ""),
    ],
)
def test_the_group_is_the_one_that_the_system_tells(tmp_path: Path, told: str, memory: str, cpu: str) -> None:
    for folder in ("own", "memory/own", "cpu"):
        (tmp_path / "root" / folder).mkdir(parents=True)
    (tmp_path / "cgroup").write_text(told)
    root = tmp_path / "root"
    assert container.own_group(tmp_path / "cgroup", root) == container.Group(root / memory, root / cpu)
