"""Coverage-guided fuzzing, one process a target: `python -m tests.fuzzing --seconds 5 [TARGET ...]`.

What is found is written to the folder `crashes`, named in the output, and ends this with 1. Needs atheris (`make fuzz`
installs it).
"""

import argparse
import importlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

INPUT_BYTES = 4096
SLOWEST_SECONDS = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="all of them, if none is named")
    parser.add_argument("--seconds", type=int, default=5, help="for each target")
    parser.add_argument("--crashes", type=Path, default=Path("crashes"))
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        _fuzz(given.targets[0], given.seconds, given.crashes)
        return
    from tests.fuzzing.targets import TARGETS

    if unknown := set(given.targets) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    failed = [name for name in given.targets or TARGETS if not _run(name, given.seconds, given.crashes)]
    raise SystemExit(f"failed: {', '.join(failed)}" if failed else 0)


def _run(name: str, seconds: int, crashes: Path) -> bool:
    command = [
        sys.executable,
        "-m",
        "tests.fuzzing",
        name,
        "--one",
        "--seconds",
        str(seconds),
        "--crashes",
        str(crashes),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    if done.returncode:
        print(f"{name}: FAILED", *lines[-40:], sep="\n")
    else:
        print(f"{name}: {next((line for line in reversed(lines) if line.startswith('Done')), 'done')}")
    return done.returncode == 0


def _fuzz(name: str, seconds: int, crashes: Path) -> None:
    """Never returns: libFuzzer ends the process."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["backends", "gateway.api.token_path", "gateway.request.view"]):
        from tests.fuzzing.targets import TARGETS

    crashes.mkdir(exist_ok=True)
    corpus = Path(tempfile.mkdtemp(prefix="breakeven-fuzz-"))
    for number, seed in enumerate(TARGETS[name].seeds):
        (corpus / str(number)).write_bytes(seed)
    options = [f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES}", f"-timeout={SLOWEST_SECONDS}"]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={crashes}/{name}-", str(corpus)], TARGETS[name].run)
    try:
        atheris.Fuzz()
    finally:
        shutil.rmtree(corpus, ignore_errors=True)


main()
