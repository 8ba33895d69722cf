"""What tests become in other processes is told as if they had run here."""

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
import pytest
from tests.forked_workers import run_forked

@pytest.fixture(scope="session", autouse=True)
def _left():
    yield
    with open("ended", "a") as file:
        file.write("x")

@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    run_forked(session, 2, lambda item: item.nodeid.partition("::")[0])
    return True
"""
ENDINGS = """
import os, pytest

def test_passes(tmp_path):
    (tmp_path / "file").touch()

def test_fails(tmp_path):
    print("what it printed")
    assert os.getpid() == 0

@pytest.mark.skip(reason="why not")
def test_is_skipped():
    pass
"""


def run(folder: Path, *arguments: str) -> str:
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\ntmp_path_retention_policy = failed", encoding="utf-8")
    (folder / "kept").mkdir()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    alone = {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TMPDIR": str(folder / "kept"),
    }
    done = subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_every_ending_and_what_was_printed_is_told(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"test_{name}.py").write_text(ENDINGS, encoding="utf-8")
    said = run(tmp_path, "-rs")
    assert "3 failed, 3 passed, 3 skipped" in said
    assert said.count("\nwhat it printed\n") == 3
    assert "why not" in said
    assert (tmp_path / "ended").read_text(encoding="utf-8") == "xx", "each worker ends its fixtures, once"
    kept = [path for path in (tmp_path / "kept").glob("*/*/*") if not path.is_symlink()]
    assert {path.name.rstrip("012") for path in kept} == {"test_fails"}, "no locks, nothing of what passed"


@pytest.mark.parametrize(
    ("text", "arguments", "told"),
    [
        ("import os\ndef test_dies(): os._exit(7)", (), "ended with 7 while it ran test_last.py::test_dies"),
        ("def test_waits():\n import time\n time.sleep(600)", ("-x",), "stopping after 1 failures"),
    ],
    ids=["a worker dies", "one failure is enough"],
)
def test_what_ends_it_early_is_told(tmp_path: Path, text: str, arguments: tuple[str, ...], told: str) -> None:
    (tmp_path / "test_first.py").write_text("def test_fails(): assert False", encoding="utf-8")
    (tmp_path / "test_last.py").write_text(text, encoding="utf-8")
    assert told in run(tmp_path, *arguments)


def test_a_test_that_hangs_is_told_with_where_it_stood(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text("import time\ndef test_hangs(): time.sleep(600)", encoding="utf-8")
    said = run(tmp_path, "-p", "pytest_timeout", "--timeout", "1")
    assert "Failed: Timeout (>1.0s) from pytest-timeout." in said
    assert "def test_hangs(): time.sleep(600)" in said
