"""What a first `make` left half done is done by the next; what it cannot do it says."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LACKS_ENSUREPIP = '[ "$1" = -m ] && mkdir -p .venv/bin && ln -sf "$(command -v sh)" .venv/bin/python && exit 1'
WHOLE = '[ "$1" = -m ] && mkdir -p .venv/bin && ln -sf "$(command -v sh)" .venv/bin/python && touch .venv/bin/pip'


def make_venv(folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    fake = folder / "python"
    fake.write_text(f'#!/bin/sh\n{python}\n[ "$1" = -c ] || [ -e .venv/bin/pip ]\n')
    fake.chmod(0o755)
    command = ["make", f"PYTHON={fake}", ".venv/bin/python"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def test_a_venv_that_failed_half_way_is_made_anew(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    assert make_venv(tmp_path, LACKS_ENSUREPIP).returncode != 0
    again = make_venv(tmp_path, WHOLE)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / ".venv/bin/pip").exists()


@pytest.mark.parametrize(("version", "is_taken"), [("3.10", False), ("3.11", True), ("3.14", True), ("3.15", False)])
def test_a_python_for_which_pins_have_no_wheels_is_told_before_pip_is(
    tmp_path: Path, version: str, is_taken: bool
) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    says = f"import sys; sys.version_info = ({version.replace('.', ', ')}, 0); exec(sys.argv[1])"
    done = make_venv(tmp_path, f"""[ "$1" = -c ] && exec '{sys.executable}' -c '{says}' "$2"\n{WHOLE}""")
    assert (done.returncode == 0) is is_taken, done.stderr
    assert ("Python 3.11 to 3.14" in done.stdout) is not is_taken


def test_where_pip_fails_a_sentence_says_what_it_needs(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    command = ["make", ".venv/.pip"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "a mirror in PIP_INDEX_URL" in done.stdout
    assert not (tmp_path / ".venv/.pip").exists()
