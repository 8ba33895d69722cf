"""What was measured so far and the time that is left; written to the report after every part. Knows no device."""

import json
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engine_gpu.report import build_report

UNDER_WAY = "under_way"
GPU = "gpu"
# A part that takes this many times what it may need hangs; compilation on a slow processor takes less.
HANGS_AFTER = 5.0
SHORTEST_LIMIT_SECONDS = 90.0


class AnotherDevice(Exception):
    """The report has figures of another device, which would be compared with this device's rates."""


def nothing() -> None:
    """The check after each part where none can harm those after it."""


def unlimited(_seconds: float) -> AbstractContextManager[None]:
    """The time limit of parts where none can hang."""
    return nullcontext()


@dataclass
class Run:
    """Measures parts, each inside `limited`, which ends the process if the part hangs.

    `check` is called after each part, and raises if later parts of this process would fail or be measured wrongly.
    """

    output: Path | None
    deadline: float
    machine: dict[str, Any]
    commit: str
    check: Callable[[], None] = nothing
    limited: Callable[[float], AbstractContextManager[None]] = unlimited
    results: dict[str, Any] = field(default_factory=dict[str, Any])

    def resume(self) -> None:
        """Take over what another process wrote: its figures stay, and the part that it died in has failed.

        Raises AnotherDevice if that was measured on another one.
        """
        if self.output is None or not self.output.exists():
            return
        written = json.loads(self.output.read_text(encoding="utf-8"))
        was, now = written["machine"].get(GPU), self.machine.get(GPU)
        if was != now:
            raise AnotherDevice(
                f"{self.output} holds figures of {was}, and this is {now}; give another --output, or no --resume."
            )
        self.results = written["results"]
        self.results.pop("left_out", None)
        settle(self.results)

    def seconds_left(self) -> float:
        """Until the budget is spent."""
        return self.deadline - time.monotonic()

    def measured(self, path: tuple[str, ...]) -> Any:
        """The figures of a part, None if there are none yet."""
        place: Any = self.results
        for name in path:
            place = place.get(name) if isinstance(place, dict) else None
        return place

    def is_settled(self, path: tuple[str, ...]) -> bool:
        """Whether a part has its figures, or has failed: it is not measured again."""
        return self.measured(path) is not None or "/".join(path) in self.results.get("failed", {})

    def attempt(self, path: tuple[str, ...], needed_seconds: float, measure: Callable[[], Any]) -> Any:
        """Measure one part, write the report, and return the figures; None if there are none, and the report says why.

        A part that has figures already is not measured again.
        """
        place = self.results
        for name in path[:-1]:
            place = place.setdefault(name, {})
        if path[-1] not in place:
            figures = self.obtain(path, needed_seconds, measure)
            if figures is not None:
                place[path[-1]] = figures
                self.write()
                self.check()
        return place.get(path[-1])

    def obtain(self, path: tuple[str, ...], needed_seconds: float, make: Callable[[], Any]) -> Any:
        """What `make` returns; None if it fails, has failed before, or has no time left, and the report says which."""
        name, left = "/".join(path), self.seconds_left()
        if name in self.results.get("failed", {}):
            return None
        if left < needed_seconds:
            self.results.setdefault("left_out", {})[name] = f"{left:.0f} s left, {needed_seconds:.0f} s needed"
            self.write()
            return None
        self.results[UNDER_WAY] = name
        self.write()
        began = time.monotonic()
        print(f"{name} begins, {left:.0f} s left", file=sys.stderr, flush=True)
        try:
            with self.limited(max(SHORTEST_LIMIT_SECONDS, HANGS_AFTER * needed_seconds)):
                return make()
        except Exception as error:  # noqa: BLE001 - one part must not cost the others their figures
            traceback.print_exc()  # the device may be available only once: show where it failed
            self.results.setdefault("failed", {})[name] = f"{type(error).__name__}: {error}"
        finally:
            del self.results[UNDER_WAY]
            self.write()
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        self.check()
        return None

    def write(self) -> None:
        """Write the whole report, so that a process that is killed leaves a complete file with what it had."""
        if self.output is not None:
            self.output.parent.mkdir(parents=True, exist_ok=True)
            write_report(self.output, self.report())

    def report(self) -> dict[str, Any]:
        """The benchmark's one JSON object."""
        return build_report(self.machine, self.commit, self.results)


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Replace the file atomically."""
    beside = path.with_name(f"{path.name}.part")
    beside.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    beside.replace(path)


def settle(results: dict[str, Any]) -> None:
    """Mark the part that a process died in as failed."""
    died_in = results.pop(UNDER_WAY, None)
    if died_in is not None:
        results.setdefault("failed", {})[died_in] = "the measuring process ended in it"


def is_under_way(path: Path) -> bool:
    """Whether the process that wrote this file ended in the middle of a part."""
    return path.exists() and UNDER_WAY in json.loads(path.read_text(encoding="utf-8"))["results"]


def leave_out_of_time(path: Path) -> None:
    """Mark the part that the end of the budget cut off as left out, not as failed: `--resume` measures it."""
    if not is_under_way(path):
        return
    left = json.loads(path.read_text(encoding="utf-8"))
    left["results"].setdefault("left_out", {})[left["results"].pop(UNDER_WAY)] = "the time was up while it was measured"
    write_report(path, left)


def conclude(path: Path) -> dict[str, Any] | None:
    """The report that all processes left, settled and written; None if none wrote one."""
    if not path.exists():
        return None
    left = json.loads(path.read_text(encoding="utf-8"))
    settle(left["results"])
    report = build_report(left["machine"], left["commit"], left["results"])
    write_report(path, report)
    return report
