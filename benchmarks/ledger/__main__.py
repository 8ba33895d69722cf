"""The ledger's cost per request and its throughput.

Measures durable settlements per second in one process, what they add to a request at 2,000 requests/s compared with an
in-memory queue and one INSERT per request, how fast rows reach each database, their size there, and the duration of a
month's reports. `--rows 10000000` is the big month; progress goes to standard error.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.ledger.month import HOURS, measure_postgres, measure_sqlite
from benchmarks.ledger.requests import measure_requests
from benchmarks.report import Bar, build_report, options, publish

BYTES_OF_A_ROW = 300
REPORT_MILLISECONDS = 300


async def measure(rows: int, requests: int, place: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=place) as name:
        directory = Path(name)
        results = await measure_requests(directory, requests)
        results["sqlite"] = await measure_sqlite(directory, rows)
        results["postgresql"] = await measure_postgres(directory, rows)
    return results


def judge(results: dict[str, Any]) -> list[Bar]:
    """The targets in docs/ledger.md."""
    settles = max(results["durable_settlements_per_second"].values())
    added = results["added_milliseconds_at_2000_per_second"]["journal"]["p99"]
    bars = [
        Bar("durable settlements per second", settles, 10_000, "least"),
        Bar("p99 added at 2,000 requests/s, ms", added, 5, "most"),
        Bar("largest shipping lag, s", results["largest_lag_seconds"], 2, "most"),
    ]
    for name in ("sqlite", "postgresql"):
        if (found := results[name]) is not None:
            slowest = max(found["report_milliseconds"].values())
            bars.append(Bar(f"slowest month report on {name}, ms", slowest, REPORT_MILLISECONDS, "most"))
            bars.append(Bar(f"bytes of a row on {name}, all told", found["bytes_per_row"], BYTES_OF_A_ROW, "most"))
    return bars


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help=f"requests of the month, at least {HOURS}")
    parser.add_argument("--requests", type=int, default=20_000, help="requests of each latency and throughput run")
    parser.add_argument("--directory", type=Path, default=None, help="a disk with 1 kB of room for each row")
    asked = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # the same loop that serves requests
        results = runner.run(measure(asked.rows, asked.requests, asked.directory))
    publish(build_report("ledger", results, judge(results)), asked)


if __name__ == "__main__":
    main()
