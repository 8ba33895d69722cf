"""The command line without some packages: a sentence instead of a traceback; and numbers out of bounds."""

import subprocess
import sys
from pathlib import Path

import pytest

from local_engine.cli import build_parser

ROOT = Path(__file__).parents[3]
REFUSING = """
import importlib.abc, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, Refuse())
REFUSED = set()
from local_engine.cli import main

for REFUSED in ({"uvicorn"}, {"gguf"}):
    assert main(["serve", "--model", sys.argv[1], "--port", "0"]) == 1
"""


def test_a_missing_package_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    command = [sys.executable, "-c", REFUSING, str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("error")] == [
        f"error: The engine needs the Python package {refused}, which is not installed here; "
        "pip install 'breakeven[engine]' brings everything it needs."
        for refused in ("uvicorn", "gguf")
    ]


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
