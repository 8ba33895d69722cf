"""Runs the kernels' own tests, each folder in a process with the environment that Triton needs before it is
imported."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

needs_triton = pytest.mark.skipif(
    find_spec("triton") is None, reason="triton is not installed: pip install triton (it exists for Linux only)"
)


def run_folder(folder: str, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / folder)]
    child = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stdout + child.stderr
    assert " passed" in child.stdout


@needs_triton
def test_every_kernel_computes_what_its_reference_says() -> None:
    run_folder("interpreted", {"TRITON_INTERPRET": "1"})


@needs_triton
def test_every_kernel_compiles_for_hopper(tmp_path: Path) -> None:
    run_folder("compiled", {"TRITON_COMPILE_OFFLINE": "1", "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)})
