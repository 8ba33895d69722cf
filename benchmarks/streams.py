"""Thousands of open streams through the gateway: errors, latency added to events, memory per stream.

    python -m benchmarks.streams [--json] [--save] [--scale 1.0] [--workers 1]

Two loads: 2,000 streams at 5 events a second for 5 minutes, then 10,000 at 1 event a second for two. Mock and reader
share a clock, so the age of every event is known; the same load without the gateway gives the baseline. The added
latency is reported for the time when all streams are open and none has ended, and for the whole run: opening and
booking a stream costs about as much as thirty events, so opening or ending hundreds a second delays the events of
others. If the hard limit on open files is below two per stream there are fewer streams, as `streams` in the result
says; each worker has its own limit. `--scale` shrinks both streams and time, for a trial.
"""

import contextlib
import json
import resource
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.gateway import rivals
from benchmarks.gateway.rivals import Rival
from benchmarks.report import Bar, build_report, options, publish

FILES_PER_STREAM = 2
SPARE_FILES = 1000
EVENNESS = 0.8  # usable share of a worker's files: the kernel does not spread connections evenly


@dataclass(frozen=True, slots=True)
class Load:
    """This many streams at once, each of `events` events `gap_ms` apart, opened over `ramp_seconds`."""

    name: str
    streams: int
    events: int
    gap_ms: int
    ramp_seconds: float

    @property
    def model(self) -> str:
        return f"mock-{self.events}x{self.gap_ms}"

    def scaled(self, scale: float) -> "Load":
        streams, events = (max(1, round(value * scale)) for value in (self.streams, self.events))
        return replace(self, streams=streams, events=events, ramp_seconds=self.ramp_seconds * scale)

    def within(self, fitting: int) -> "Load":
        """The load with at most `fitting` streams."""
        return replace(self, streams=min(self.streams, fitting))


LOADS = (
    Load("2,000 streams, 5 events/s, 5 min", 2000, 1500, 200, 10.0),
    Load("10,000 streams, 1 event/s, 2 min", 10_000, 120, 1000, 50.0),
)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=1)
    chosen = parser.parse_args()
    fitting = allow_files(chosen.workers)
    loads = [load.scaled(chosen.scale).within(fitting) for load in LOADS]
    results = {load.name: measure(load, chosen.workers) for load in loads}
    file = None if chosen.workers == 1 else f"streams_{chosen.workers}_workers"
    publish(build_report("streams", results, bars(results)), chosen, file=file)


def allow_files(workers: int) -> int:
    """Raise this process's limit on open files, which children inherit; returns how many streams fit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    of_workers = (hard - SPARE_FILES) // FILES_PER_STREAM * (workers * EVENNESS if workers > 1 else 1)
    return min(hard - SPARE_FILES, int(of_workers))


def measure(load: Load, workers: int) -> dict[str, Any]:
    """The load against the mock alone, then through the gateway."""
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(rivals.mock())
        direct = read(url, "none", load.model, load)
        gateway = stack.enter_context(rivals.ours(url, load.model, workers))
        idle = gateway.memory_megabytes()
        peak = Peak(gateway)
        before = gateway.cpu_seconds()
        through = read(gateway.url, gateway.key, gateway.model, load)
        cpu = gateway.cpu_seconds() - before
        peak.stop()
    ages, bare = through["steady_chunk_age_ms"], direct["steady_chunk_age_ms"]
    whole, bare_whole = through["chunk_age_ms"], direct["chunk_age_ms"]
    return {
        "streams": load.streams,
        "events": load.streams * load.events,
        "errors": through["errors"],
        "first_error": through["first_error"],
        "event_age_ms": ages,
        "event_age_ms_without_gateway": bare,
        "added_p50_ms": added(ages, bare, "p50"),
        "added_p99_ms": added(ages, bare, "p99"),
        "added_p99_ms_with_openings_and_endings": added(whole, bare_whole, "p99"),
        "cpu_microseconds_per_event": round(cpu / (load.streams * load.events) * 1e6, 1),
        "idle_megabytes": idle,
        "kilobytes_per_stream": round((peak.megabytes - idle) * 1000 / load.streams, 1),
    }


def added(through: Mapping[str, float], direct: Mapping[str, float], quantile: str) -> float | None:
    """Milliseconds; None where no event came while all streams were open."""
    return round(through[quantile] - direct[quantile], 3) if through and direct else None


def read(url: str, key: str, model: str, load: Load) -> dict[str, Any]:
    """One stream per connection, read to its end."""
    command = [sys.executable, "-m", "benchmarks.gateway.client", url, "--key", key, "--model", model, "--stream"]
    command += ["--connections", str(load.streams), "--requests", str(load.streams)]
    command += ["--ramp-seconds", str(load.ramp_seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


class Peak:
    """The peak of a gateway's memory, sampled only every five seconds because sampling costs CPU."""

    def __init__(self, gateway: Rival) -> None:
        self.megabytes = gateway.memory_megabytes()
        self._gateway = gateway
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(5.0):
            self.megabytes = max(self.megabytes, self._gateway.memory_megabytes())

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


def bars(results: dict[str, dict[str, Any]]) -> list[Bar]:
    """No stream may fail."""
    return [Bar(f"errors, {name}", found["errors"], 0, "most") for name, found in results.items()]


if __name__ == "__main__":
    main()
