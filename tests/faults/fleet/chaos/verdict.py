"""Whether the books agree with what callers received: each sentence from `broken_promises` is one broken promise."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import asyncpg

from backends.usage import Usage
from gateway.money import parse_usd
from gateway.pricing.catalogue import ModelPrices
from gateway.pricing.price import price
from tests.faults.fleet.chaos.callers import Answer, Budget, Told

PARTS = ("input", "cached_input", "cache_write", "output", "other", "compute")
COST = " + ".join(f"e.{part}_pico_usd" for part in PARTS)
SUMMED = ("input_tokens", "cached_input_tokens", "output_tokens", *(f"{part}_pico_usd" for part in PARTS))
LEASES_OF = 17
"""A lease covers what a request needs plus sixteen times as much (docs/fleet.md)."""
EXPECTED_STATUSES = frozenset({200, 429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Books:
    """The books in the database, once everything was shipped."""

    rows: Sequence[asyncpg.Record]
    sums: dict[str, dict[str, int]]
    """Sums of each table, by the column that is summed."""
    reported_usd: Sequence[str]
    """The total that each replica reports."""


async def read_books(socket_directory: str, reported_usd: Sequence[str]) -> Books:
    connection = await asyncpg.connect(host=socket_directory, user="postgres", database="postgres")
    try:
        rows = await connection.fetch(
            f"select encode(e.request_id, 'hex') as id, d.status, d.key_id, d.team, {COST} as cost, e.*"
            " from entries e join dimensions d on d.id = e.dimension_id"
        )
        sums = {table: await _sums(connection, table) for table in ("entries", "hourly", "daily")}
        return Books(rows, sums, reported_usd)
    finally:
        await connection.close()


async def _sums(connection: Any, table: str) -> dict[str, int]:
    requests = "count(*)" if table == "entries" else "sum(requests)"
    summed = ", ".join(f"coalesce(sum({name}), 0)::bigint as {name}" for name in SUMMED)
    [row] = await connection.fetch(f"select {requests}::bigint as requests, {summed} from {table}")
    return dict(row)


def broken_promises(
    told: Told, books: Books, budgets: Sequence[Budget], prices: ModelPrices, *, bound: int, may_be_lost: bool
) -> Iterator[str]:
    """`bound` is what one request holds; `may_be_lost` says that a replica was away for so long that its leases
    ended."""
    if odd := set(told.statuses) - EXPECTED_STATUSES:
        yield f"answers with the status {sorted(odd)}"
    by_id: dict[str, list[asyncpg.Record]] = {}
    for row in books.rows:
        by_id.setdefault(row["id"], []).append(row)
    for request_id, rows in by_id.items():
        if len(rows) > 1:
            yield f"{request_id} is booked {len(rows)} times"
    for answer in told.answers:
        for row in by_id.get(answer.request_id, [None]):
            yield from _answered_otherwise(answer, row, prices)
    for request_id in told.begun:
        if request_id not in by_id:
            yield f"{request_id} was begun and is not in the books"
    if len(books.rows) > told.sent.total():
        yield f"{len(books.rows)} entries of {told.sent.total()} requests"
    yield from _sums_differ(books)
    for budget in budgets:
        yield from _overspent(budget, books.rows, LEASES_OF * bound if may_be_lost else 0)


def _answered_otherwise(answer: Answer, row: asyncpg.Record | None, prices: ModelPrices) -> Iterator[str]:
    if row is None:
        yield f"{answer.request_id} was answered and is not in the books"
        return
    if row["status"] != "completed":
        yield f"{answer.request_id} was answered and is booked as {row['status']}"
        return
    booked = (row["input_tokens"], row["cached_input_tokens"], row["output_tokens"])
    if booked != (answer.input_tokens, answer.cached_input_tokens, answer.output_tokens):
        yield f"{answer.request_id} is booked with {booked} tokens instead of {answer}"
    usage = Usage(input_tokens=booked[0], cached_input_tokens=booked[1], output_tokens=booked[2])
    worth = price(usage, prices).total_pico_usd
    if row["cost"] - row["other_pico_usd"] != worth:
        yield f"{answer.request_id} is booked with {row['cost']} instead of {worth} pico-dollars"
    if answer.cost_usd is not None and parse_usd(answer.cost_usd) != row["cost"]:
        yield f"{answer.request_id} is booked with {row['cost']} and was told to cost ${answer.cost_usd}"


def _sums_differ(books: Books) -> Iterator[str]:
    for table in ("hourly", "daily"):
        if books.sums[table] != books.sums["entries"]:
            yield f"{table} sums to {books.sums[table]}, the entries to {books.sums['entries']}"
    total = sum(books.sums["entries"][f"{part}_pico_usd"] for part in PARTS)
    for reported in books.reported_usd:
        if Decimal(reported).scaleb(12) != total:
            yield f"a replica reports ${reported}, the entries are {total} pico-dollars"


def _overspent(budget: Budget, rows: Sequence[asyncpg.Record], allowance: int) -> Iterator[str]:
    """Whether more was spent than the budget allows. A request whose process died counts at its highest possible
    cost."""
    if budget.limit_pico_usd is None:
        return
    own = [row for row in rows if budget.name in (row["team"], row["key_id"])]
    costs = [row["upper_pico_usd"] if row["status"] == "orphaned" else row["cost"] for row in own]
    if None in costs:
        yield f"{budget.name} has requests without a cost"
        return
    spent = sum(costs)
    if spent > budget.limit_pico_usd + allowance:
        yield f"{budget.name} spent {spent} of {budget.limit_pico_usd} pico-dollars"
