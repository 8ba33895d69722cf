"""The JSON that every benchmark prints: machine, commit, results, and bars that hold or do not."""

import argparse
import contextlib
import json
import operator
import os
import platform
import shutil
import subprocess
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

RESULTS = Path(__file__).parent / "results"
SIGNS = {"least": (operator.ge, "at least"), "most": (operator.le, "at most"), "above": (operator.gt, "above")}


@dataclass(frozen=True, slots=True)
class Bar:
    """A measured value and its target."""

    what: str
    value: float
    bar: float
    is_at: Literal["least", "most", "above"]

    @property
    def holds(self) -> bool:
        return SIGNS[self.is_at][0](self.value, self.bar)


def build_report(name: str, results: Mapping[str, Any], bars: Sequence[Bar]) -> dict[str, Any]:
    """Ready for `json.dumps`. If the load average is well above the benchmark's own, trust ratios only."""
    return {
        "name": name,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "commit": commit(),
        "load_average": round(os.getloadavg()[0], 2),
        "results": results,
        "bars": [
            {"what": b.what, "value": b.value, "bar": f"{SIGNS[b.is_at][1]} {b.bar}", "holds": b.holds} for b in bars
        ],
    }


def options(purpose: str | None) -> argparse.ArgumentParser:
    """The options of every benchmark; each adds its own."""
    parser = argparse.ArgumentParser(description=purpose, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--save", action="store_true", help="write it to benchmarks/results too")
    return parser


def publish(
    report: Mapping[str, Any], chosen: argparse.Namespace, words: object = None, *, file: str | None = None
) -> None:
    """Prints the report, or its `words` unless JSON was asked for; saves it under its name, or as `file`."""
    text = json.dumps(report, indent=1)
    if chosen.save:
        (RESULTS / f"{file or report['name']}.json").write_text(text + "\n", encoding="utf-8")
    print(text if chosen.json or words is None else words)


def commit() -> str:
    """The checked-out commit; empty without git or a repository, since failing would lose minutes of measurements."""
    if shutil.which("git") is None:
        return ""
    result = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return result.stdout.strip()


@contextlib.contextmanager
def told(*mistakes: type[Exception]) -> Generator[None]:
    """Ends the program with the sentence of a mistake of its user's, without a traceback."""
    try:
        yield
    except mistakes as mistake:
        raise SystemExit(str(mistake)) from mistake
