import os
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from gateway.telemetry.fleet_metrics import STALE_SECONDS, FleetRegistry

NOW = 1_795_000_000.0


def worker(directory: Path, name: str, requests: int) -> FleetRegistry:
    own = CollectorRegistry()
    counter = Counter("breakeven_requests", "Settled requests.", ("model",), registry=own)
    counter.labels('a \\ "quoted" model').inc(requests)
    Histogram("breakeven_seconds", "How long.", buckets=(1.0,), registry=own).observe(requests)
    return FleetRegistry(own, directory, name, clock=lambda: NOW)


def left_by(registry: FleetRegistry, directory: Path, name: str, *, seconds_ago: float = 1.0) -> None:
    registry.publish()
    os.utime(directory / f"{name}.prom", (NOW - seconds_ago, NOW - seconds_ago))


def lines(registry: FleetRegistry) -> list[str]:
    return generate_latest(registry).decode().splitlines()


def test_whoever_is_asked_shows_all_workers_each_family_once(tmp_path: Path) -> None:
    one, two = worker(tmp_path, "worker-0000", 1), worker(tmp_path, "worker-0001", 2)
    left_by(two, tmp_path, "worker-0001")
    found = lines(one)
    assert found.count("# TYPE breakeven_requests_total counter") == 1
    model = 'model="a \\\\ \\"quoted\\" model"'
    assert f'breakeven_requests_total{{{model},worker="worker-0000"}} 1.0' in found
    assert f'breakeven_requests_total{{{model},worker="worker-0001"}} 2.0' in found
    assert 'breakeven_seconds_bucket{le="1.0",worker="worker-0001"} 0.0' in found


def test_its_own_figures_are_live_whatever_its_file_says(tmp_path: Path) -> None:
    old = worker(tmp_path, "worker-0000", 1)
    left_by(old, tmp_path, "worker-0000")
    assert any(line.endswith("7.0") for line in lines(worker(tmp_path, "worker-0000", 7)))


def test_a_dead_worker_is_not_shown_for_ever(tmp_path: Path) -> None:
    one, two = worker(tmp_path, "worker-0000", 1), worker(tmp_path, "worker-0001", 2)
    left_by(two, tmp_path, "worker-0001", seconds_ago=STALE_SECONDS + 1)
    assert not any("worker-0001" in line for line in lines(one))
    left_by(two, tmp_path, "worker-0001", seconds_ago=-3600)
    assert not any("worker-0001" in line for line in lines(one)), "nor for an hour, after the clock was put back by one"
    left_by(two, tmp_path, "worker-0001")
    two.remove()
    assert not any("worker-0001" in line for line in lines(one))


def test_a_disk_that_takes_no_metrics_is_told_once_and_when_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry = worker(tmp_path, "one", 1)
    (tmp_path / "one.prom").mkdir()
    for _ in range(3):
        registry.publish()
    assert ["see that the disk of BREAKEVEN_HOME has room" in one for one in caplog.messages] == [True]
    (tmp_path / "one.prom").rmdir()
    for _ in range(3):
        registry.publish()
    assert caplog.messages[1:] == ["this worker's metrics are written for the others again"]
