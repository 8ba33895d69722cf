"""Advice to install an extra names the Python that runs Breakeven."""

import re
import sys
from pathlib import Path

import pytest

import gateway
from gateway.extras import command_for, install_command, missing_here

ROOT = Path(gateway.__file__).resolve().parents[1]
ANY_PIP = re.compile(r"(?<!-m )pip install '?breakeven")
"""Another Python's pip would look the name up on a package index."""


@pytest.mark.parametrize(
    ("python", "written"), [("/venv/bin/python", "/venv/bin/python"), ("/my venv/bin/python", "'/my venv/bin/python'")]
)
def test_the_command_is_this_python_s_own_as_a_shell_reads_it(
    monkeypatch: pytest.MonkeyPatch, python: str, written: str
) -> None:
    monkeypatch.setattr(sys, "executable", python)
    assert install_command("redis") == f"{written} -m pip install 'breakeven[redis]'"


def test_where_there_is_no_pip_uv_s_is_named() -> None:
    for python, written in (("/venv/bin/python", "/venv/bin/python"), ("/my venv/bin/python", "'/my venv/bin/python'")):
        told = command_for(python, "redis", has_pip=False)
        assert told == f"uv pip install --python {written} 'breakeven[redis]'"


def test_nothing_tells_to_fetch_breakeven_by_its_name_from_an_index() -> None:
    told = [*ROOT.glob("gateway/**/*.py"), *ROOT.glob("docs/*.md"), ROOT / "README.md"]
    wrong = {str(one.relative_to(ROOT)) for one in told if ANY_PIP.search(one.read_text(encoding="utf-8"))}
    assert not wrong


def test_who_asks_over_http_is_told_no_path_of_this_machine() -> None:
    assert sys.executable not in missing_here("reports")
    assert "breakeven doctor" in missing_here("reports")
