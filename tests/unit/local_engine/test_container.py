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
    ],
)
def test_a_container_is_as_large_as_its_limits(
    tmp_path: Path, files: dict[str, str], memory: int | None, cores: int | None
) -> None:
    """The engine planned with the whole machine's memory, and took a thread for each of its cores."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert (container.memory_left(tmp_path), container.cores(tmp_path)) == (memory, cores)


@pytest.mark.parametrize(
    ("told", "folder"), [("0::/\n", ""), ("4:memory:/x\n0::/system.slice/a.service\n", "system.slice/a.service")]
)
def test_the_group_is_the_one_that_the_system_tells(tmp_path: Path, told: str, folder: str) -> None:
    (tmp_path / "cgroup").write_text(told)
    assert container.own_group(tmp_path / "cgroup") == container.ROOT / folder
