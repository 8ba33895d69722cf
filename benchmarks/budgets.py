"""What a strict budget adds to a request: in one process, and shared with other workers through a real Redis.

    python -m benchmarks.budgets [--json] [--requests 20000]

One worker reserves and settles on a budget that is far from spent, one request at a time and then 64 at once. For
comparison, a rate limit, which asks Redis for every request. Times are this worker's CPU.
"""

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Bar, build_report, options, publish
from gateway.limits.admission import Admission
from gateway.limits.counters import Account, Counters, Grant, Holding, Rate, Shortage, budget_account
from gateway.limits.local_counters import LocalCounters
from gateway.limits.treasury import Treasury
from gateway.limits.values import parse_limits, window_id
from gateway.storage.redis.counters import RedisCounters, connect
from tests.redis_server import RedisServer

NOW_US = 1_795_000_000_000_000
HELD, COST = 40_000_000, 25_000_000  # pico-dollars
ACCOUNT = budget_account("k", window_id("month", NOW_US))


class Counting(RedisCounters):
    """Also counts how often Redis is asked."""

    visits = 0

    async def lease(self, account: Account, *, limit: int, holding: Holding, need: int, want: int) -> Grant:
        self.visits += 1
        return await super().lease(account, limit=limit, holding=holding, need=need, want=want)

    async def take(self, rates: Sequence[Rate], left: list[float] | None = None) -> Shortage | None:
        self.visits += 1
        return await super().take(rates, left)


async def books() -> dict[Account, int]:
    return {ACCOUNT: 0}


async def budget_seconds(counters: Counters, requests: int, *, at_once: int) -> float:
    """CPU seconds per request."""
    await counters.read_books(books, is_urgent=True)
    limits = parse_limits({"budget_usd": "1000000"})
    admission = Admission(limits={"k": limits}, treasury=Treasury(counters))
    await admission.reserve("first", "k", HELD, now_us=NOW_US)
    admission.settle("first", COST)

    async def ask(first: int) -> None:
        for number in range(first, requests, at_once):
            name = str(number)
            await admission.reserve(name, "k", HELD, now_us=NOW_US)
            admission.settle(name, COST)

    began = time.process_time()
    await asyncio.gather(*(ask(first) for first in range(at_once)))
    return (time.process_time() - began) / requests


async def rate_seconds(counters: Counters, requests: int) -> float:
    admission = Admission(limits={"k": parse_limits({"requests_per_minute": 10**9})}, treasury=Treasury(counters))
    began = time.process_time()
    for _ in range(requests):
        await admission.admit("k", tokens=100)
    return (time.process_time() - began) / requests


async def measure(requests: int, directory: Path) -> Mapping[str, Any]:
    with RedisServer(directory) as server:
        shared = Counting(connect(server.url), worker="benchmark", settle_seconds=0.0)
        results: dict[str, Any] = {"requests": requests}
        for at_once in (1, 64):
            before = shared.visits
            alone = await budget_seconds(LocalCounters(), requests, at_once=at_once)
            leased = await budget_seconds(shared, requests, at_once=at_once)
            results[f"budget_{at_once}_at_once"] = {
                "one_process_us": round(alone * 1e6, 2),
                "shared_us": round(leased * 1e6, 2),
                "visits_per_request": round((shared.visits - before) / requests, 4),
            }
        visits = max(1, requests // 10)
        results["rate"] = {
            "one_process_us": round(await rate_seconds(LocalCounters(), visits) * 1e6, 2),
            "shared_us": round(await rate_seconds(shared, visits) * 1e6, 2),
        }
        await shared.aclose()
    return results


def bars(results: Mapping[str, Any]) -> list[Bar]:
    visit = results["rate"]["shared_us"]
    return [
        Bar("visits to Redis per budgeted request", results["budget_1_at_once"]["visits_per_request"], 0.1, "most"),
        Bar(
            "a leased budget against a visit to Redis, time",
            round(results["budget_1_at_once"]["shared_us"] / visit, 3),
            0.25,
            "most",
        ),
    ]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        results = asyncio.run(measure(chosen.requests, Path(directory)))
    publish(build_report("budgets", results, bars(results)), chosen)


if __name__ == "__main__":
    main()
