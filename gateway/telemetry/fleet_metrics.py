"""One exposition for all workers of a replica: each writes its metrics to a file, and whichever is asked shows all."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gateway.whole_file import write_whole

WRITE_SECONDS = 2.0
STALE_SECONDS = 30.0
"""A worker silent for this long is gone; its successor counts from zero, as Prometheus expects."""


class FleetRegistry(CollectorRegistry):
    """Collects this worker's metrics live and the others' from `directory`, each sample labelled with its worker."""

    def __init__(
        self, own: CollectorRegistry, directory: Path, worker: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__()
        self._own = own
        self._file = directory / f"{worker}.prom"
        self._clock = clock

    def write(self) -> None:
        """Publishes this worker's metrics for the others."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._file, generate_latest(self._own), lasts=False)

    def remove(self) -> None:
        """Called when this worker is about to end."""
        self._file.unlink(missing_ok=True)

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for worker, text in self._texts():
            for family in text_string_to_metric_families(text):
                merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                merged.samples += [_labelled(sample, worker) for sample in family.samples]
        yield from families.values()

    def _texts(self) -> Iterator[tuple[str, str]]:
        yield self._file.stem, generate_latest(self._own).decode()
        for file in sorted(self._file.parent.glob("*.prom")):
            if file == self._file:
                continue
            try:
                if abs(self._clock() - os.stat(file).st_mtime) < STALE_SECONDS:  # absolute: the clock may be set back
                    yield file.stem, file.read_text("utf-8")
            except FileNotFoundError:
                continue  # its worker has just ended


def _labelled(sample: Sample, worker: str) -> Sample:
    return sample._replace(labels={**sample.labels, "worker": worker})
