"""The long run: `python -m tests.faults.fleet.chaos --seconds 300 --seed 1`; exit status 1 if a promise was broken."""

import argparse
import asyncio
import json
import logging
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.fleet.chaos.run import run_chaos
from tests.postgres_server import run_postgres
from tests.redis_server import RedisServer

SECONDS_OF_A_BUDGET = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what it started is stopped too
    logging.getLogger("aiohttp.server").disabled = True  # the provider's callers are killed on purpose
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {line}", file=sys.stderr, flush=True)

    servers = run_postgres()
    try:
        with tempfile.TemporaryDirectory(prefix="breakeven-chaos-") as folder:
            root = Path(folder)
            (root / "redis").mkdir()
            with RedisServer(root / "redis") as redis:
                budgets = 4 + int(wanted.seconds / SECONDS_OF_A_BUDGET)
                postgres = next(servers).directory
                chaos = run_chaos(
                    root, postgres, redis, seed=wanted.seed, seconds=wanted.seconds, budgets=budgets, say=say
                )
                verdict = asyncio.run(chaos)
    finally:
        next(servers, None)
    figures = {
        "seed": wanted.seed,
        "faults": dict(verdict.faults.done),
        "longest_absence_seconds": round(verdict.faults.longest_absence_seconds, 1),
        **verdict.told.summary(),
        "entries": verdict.entries,
        "broken_promises": verdict.broken_promises,
    }
    print(json.dumps(figures, indent=2))
    sys.exit(bool(verdict.broken_promises))


main()
