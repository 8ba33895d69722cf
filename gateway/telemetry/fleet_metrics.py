"""One exposition for all workers of a replica: each writes its metrics to a file, and whichever is asked shows all."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gateway.whole_file import write_whole

log = logging.getLogger(__name__)
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
        self._is_unpublished = False

    def publish(self) -> None:
        """Writes this worker's metrics for the others. Logs once if that fails, and once when it works again."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, generate_latest(self._own), lasts=False)
        except OSError as error:
            if not self._is_unpublished:
                log.error(
                    "cannot write this worker's metrics for the others (%s), which leave it out of /metrics after "
                    "%.0f s: see that the disk of BREAKEVEN_HOME has room and may be written to",
                    error, STALE_SECONDS,
                )  # fmt: skip
            self._is_unpublished = True
        else:
            if self._is_unpublished:
                log.warning("this worker's metrics are written for the others again")
            self._is_unpublished = False

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
