"""The command line without some packages: a sentence instead of a traceback, and only the needed ones are required."""

import subprocess
import sys
from pathlib import Path

import pytest

from local_engine.cli import build_parser

ROOT = Path(__file__).parents[3]
REFUSING = """
import importlib.abc, sys

REFUSED, TRIED = {refused}, []

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in REFUSED:
            TRIED.append(name)
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None

sys.meta_path.insert(0, Refuse())
"""


def run_without(refused: set[str], code: str) -> subprocess.CompletedProcess[str]:
    """Runs a process in which some packages cannot be imported."""
    command = [sys.executable, "-c", REFUSING.format(refused=refused) + code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_missing_package_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    code = f"""
from local_engine.cli import main

for REFUSED in ({{"uvicorn"}}, {{"gguf"}}):
    assert main(["serve", "--model", {str(file)!r}, "--port", "0"]) == 1
"""
    done = run_without(set(), code)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("error")] == [
        f"error: The engine needs the Python package {refused}, which is not installed here; "
        "pip install 'breakeven[engine]' brings everything it needs."
        for refused in ("uvicorn", "gguf")
    ]


def test_serving_a_folder_without_constraints_needs_neither_gguf_nor_llguidance() -> None:
    """Nor does it try to import them."""
    code = """
from unittest.mock import sentinel
import local_engine.server.openai_server
from local_engine.assembly import load_model
from local_engine.sampling.constraints import ConstraintCompiler
from local_engine.errors import InvalidRequest
from local_engine.sampling.sampling_params import Constraint

assert not TRIED, TRIED
try:
    ConstraintCompiler(sentinel.tokenizer, 10).check(Constraint("regex", "a+"))
except InvalidRequest as error:
    print(error)
"""
    done = run_without({"gguf", "llguidance"}, code)
    assert done.returncode == 0, done.stderr
    assert "without the Python package llguidance" in done.stdout


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--threads", "0", "0 is not 1 or more"),
        ("--port", "99999", "99999 is not 0 to 65535"),
        ("--max-waiting", "-1", "-1 is not 0 or more"),
        ("--block-size", "x", "invalid integer value: 'x'"),
        ("--stall-seconds", "nan", "nan is not a duration"),
    ],
)
def test_a_number_out_of_bounds_is_one_sentence(
    capsys: pytest.CaptureFixture[str], option: str, value: str, told: str
) -> None:
    """Some ended in a traceback once the model was loaded, others meant something else than they said."""
    with pytest.raises(SystemExit):
        build_parser().parse_args(["serve", option, value])
    assert f"argument {option}: {told}" in capsys.readouterr().err
