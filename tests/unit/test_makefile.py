"""What a first `make` left half done is done by the next."""

import shutil
import subprocess
from pathlib import Path

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
