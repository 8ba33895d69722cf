"""One run from an empty database to the verdict: what was done, what callers received, which promises were broken."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from backends.usage import Usage
from gateway.clock import now_us
from gateway.config.price_files import load_price_book
from gateway.pricing.price import price
from tests.faults.fleet.chaos.callers import MAX_TOKENS, Callers, Told
from tests.faults.fleet.chaos.faults import Faults
from tests.faults.fleet.chaos.fleet import PRICED_AS, running_fleet
from tests.faults.fleet.chaos.provider import outcomes
from tests.faults.fleet.chaos.verdict import broken_promises, read_books
from tests.faults.fleet.months import until_a_month_has
from tests.postgres_server import empty_postgres
from tests.redis_server import RedisServer
from tests.scripted_provider.provider import ScriptedProvider
from tests.waiting import PATIENCE_SECONDS

CALLERS = 12
MOST_INPUT_TOKENS = 400
"""The input that a request holds money for."""
BUDGET_OF = 15
"""A budget covers the holds of this many requests; at their actual cost, about five times as many."""
LEASE_SECONDS = 40.0
"""A worker that could not report for this long spends nothing more (docs/fleet.md)."""
OUTCOMES = 50_000


@dataclass(frozen=True, slots=True)
class Verdict:
    told: Told
    faults: Faults
    entries: int
    broken_promises: list[str]


async def run_chaos(
    root: Path,
    postgres_directory: str,
    redis: RedisServer,
    *,
    seed: int,
    seconds: float = 0.0,
    budgets: int = 4,
    say: Callable[[str], None] = lambda line: None,
) -> Verdict:
    """Runs at least one turn of every fault, and as many turns as begin within `seconds`."""
    await until_a_month_has(seconds + PATIENCE_SECONDS)
    redis.flush()
    database = await empty_postgres(postgres_directory)
    prices = load_price_book().lookup(*PRICED_AS, now_us())
    assert prices is not None
    bound = price(Usage(input_tokens=MOST_INPUT_TOKENS, output_tokens=MAX_TOKENS), prices).total_pico_usd
    chance = random.Random(seed)
    async with (
        ScriptedProvider(*outcomes(chance, OUTCOMES), keeps_requests=False) as provider,
        running_fleet(root, provider=provider.base_url, database=database, redis=redis.url) as fleet,
    ):
        limited = await fleet.make_budgets(budgets, BUDGET_OF * bound)
        free = await fleet.make_free_key()
        urls = [replica.url for replica in fleet.replicas]
        callers = Callers(urls, free, limited, count=CALLERS, seed=seed)
        faults = Faults(fleet.replicas, redis.pid, postgres_directory, chance, say)
        asking = asyncio.create_task(callers.run())
        until = time.monotonic() + seconds
        try:
            await faults.turn()
            while time.monotonic() < until:
                await faults.turn()
        finally:
            callers.stop()
            await asking
        books = await read_books(postgres_directory, await fleet.until_booked())
    broken = broken_promises(
        callers.told,
        books,
        limited,
        prices,
        bound=bound,
        may_be_lost=faults.longest_absence_seconds > LEASE_SECONDS,
    )
    return Verdict(callers.told, faults, len(books.rows), list(broken))
