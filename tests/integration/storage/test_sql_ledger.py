"""Entries are written to both databases and read back; sums never count one twice."""

import asyncio
import random

import msgspec
import pytest
from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.instants import DAY_US
from gateway.ledger.entry import Attempt, Entry, Status
from gateway.storage.rows.bounded import MOST_TOKENS
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.storage.tables.books import entries, hourly
from gateway.sums import SumsQuery
from tests.unit.gateway.ledger.builders import (
    failed_attempt,
    make_decision,
    make_entry,
    make_facts,
    make_intent,
    make_local_entry,
    request_id,
)

pytestmark = pytest.mark.integration


VARIED = [
    make_entry(1),
    make_local_entry(2),
    make_entry(3, attempts=(failed_attempt(1), Attempt(2, "x", "y", "answered", 0.3, 1.25, None, 200))),
    make_entry(4, cost=None, cost_lower_pico_usd=0, cost_upper_pico_usd=None, status=Status.orphaned, attempts=()),
    make_entry(5, is_usage_estimated=True, cost_lower_pico_usd=1, cost_upper_pico_usd=10**13),
    make_entry(6, model="small-local", backend="local", provider="local", upstream_model="smollm2"),
    make_entry(
        7,
        intent=make_intent(
            7,
            team=None,
            project=None,
            tags=("größe", 'a"b'),
            decision=make_decision(
                facts=make_facts(
                    quality={"other": 1 / 3, "mid-hosted": 0.1},
                    warm_tokens={"small-local": 7},
                    backend_state={"mid-hosted": (3, 0.125), "gone": (0, 1e-9)},
                    needs=("tools",),
                    difficulty=None,
                )
            ),
        ),
    ),
    make_entry(8, status=Status.failed, attempts=(failed_attempt(1),), http_status=503, error="RateLimited"),
]


async def test_entries_come_back_as_they_went_in(engine: AsyncEngine) -> None:
    ledger = SqlLedger(engine)
    assert await ledger.insert(VARIED) == len(VARIED)
    for entry in VARIED:
        assert await ledger.get(entry.intent.request_id) == entry
    assert await ledger.get(request_id(99)) is None
    assert await ledger.get("nonsense") is None


async def test_shipping_twice_counts_once(engine: AsyncEngine) -> None:
    ledger = SqlLedger(engine)
    assert await ledger.insert(VARIED[:3]) == 3
    assert await ledger.insert(VARIED) == len(VARIED) - 3
    assert await SqlLedger(engine).insert([*VARIED, *VARIED]) == 0
    async with engine.connect() as connection:
        assert (await connection.execute(select(func.count()).select_from(entries))).scalar() == len(VARIED)
        sums = (await connection.execute(select(func.sum(hourly.c.requests), func.sum(hourly.c.output_tokens)))).one()
    assert sums == (len(VARIED), sum(entry.output_tokens for entry in VARIED))


async def test_several_shippers_at_once_neither_deadlock_nor_miscount(engine: AsyncEngine) -> None:
    chance = random.Random(1)
    batches: list[list[Entry]] = []
    for worker in range(4):
        own = [
            make_entry(worker * 1000 + n, intent=make_intent(worker * 1000 + n, team=f"t{n % 7}")) for n in range(60)
        ]
        chance.shuffle(own)
        batches += [own[:30], own[30:], own[10:40]]
    await asyncio.gather(*(SqlLedger(engine).insert(batch) for batch in batches))
    async with engine.connect() as connection:
        assert (await connection.execute(select(func.sum(hourly.c.requests)))).scalar() == 240
        assert (await connection.execute(select(func.count()).select_from(entries))).scalar() == 240


async def test_a_period_is_read_in_pages_in_time_order(engine: AsyncEngine) -> None:
    ledger = SqlLedger(engine)
    start = make_entry(0).intent.accepted_at_us
    # Three requests per microsecond, over two months.
    stored = [make_entry(n, intent=make_intent(n, accepted_at_us=start + (n // 3) * 2 * DAY_US)) for n in range(100)]
    await ledger.insert(stored)
    until = start + 50 * DAY_US
    read = [entry async for page in ledger.entries(start, until, page=7) for entry in page]
    assert read == [entry for entry in stored if entry.intent.accepted_at_us < until]


async def test_absurd_counts_do_not_stop_the_ledger(engine: AsyncEngine) -> None:
    ledger = SqlLedger(engine)
    nul = make_intent(2, requested_model="a\0b\ud800")
    inf, nan = float("inf"), float("nan")
    odd = make_entry(
        5, total_seconds=inf, decode_tokens_per_second=nan, time_to_first_token_seconds=-inf, gpu_seconds=nan
    )
    assert await ledger.insert([odd]) == 1
    absurd = [make_entry(n, output_tokens=2**70, cost_upper_pico_usd=2**80) for n in (1, 3, 4)]
    assert await ledger.insert([*absurd, make_entry(2, intent=nul)]) == 4
    stored = await ledger.get(request_id(1))
    assert stored is not None
    assert stored.output_tokens == MOST_TOKENS


async def test_old_months_are_dropped_and_their_sums_stay(engine: AsyncEngine) -> None:
    ledger = SqlLedger(engine)
    start = make_entry(0).intent.accepted_at_us
    stored = [
        msgspec.structs.replace(VARIED[2], intent=make_intent(n, accepted_at_us=start + n * 10 * DAY_US))
        for n in range(9)
    ]
    await ledger.insert(stored)
    assert await ledger.partitions.drop_before(start + 60 * DAY_US) == ["2026-01", "2026-02"]
    left = [entry async for page in ledger.entries(start, start + 400 * DAY_US) for entry in page]
    assert left == stored[6:]
    async with engine.connect() as connection:
        assert (await connection.execute(select(func.sum(hourly.c.requests)))).scalar() == 9


async def test_a_replica_of_the_version_before_a_migration_goes_on_shipping(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("ALTER TABLE entries ADD COLUMN newer INTEGER NOT NULL DEFAULT 0"))
    assert await SqlLedger(engine).insert(VARIED) == len(VARIED)


async def test_after_a_restore_nothing_is_booked_under_another_s_name(engine: AsyncEngine) -> None:
    """A writer caches ids; a database restored meanwhile lacks the newest, and assigns them to others."""
    writer, other = SqlLedger(engine), SqlLedger(engine)
    teams = [make_entry(n, intent=make_intent(n, team=f"team-{n % 3}", requested_model=f"m{n % 3}")) for n in range(9)]
    await writer.insert(teams[:1])
    backed_up = "DELETE FROM {0} WHERE id > (SELECT min(id) FROM {0})"
    await writer.insert(teams[1:3])
    async with engine.begin() as connection:
        for table in ("dimensions", "circumstances"):
            await connection.execute(text(backed_up.format(table)))
        for table in ("entries", "hourly", "daily"):
            await connection.execute(text(f"DELETE FROM {table} WHERE dimension_id NOT IN (SELECT id FROM dimensions)"))
        if engine.dialect.name == "postgresql":
            for table in ("dimensions", "circumstances"):
                await connection.execute(text(f"SELECT setval('{table}_id_seq', (SELECT max(id) FROM {table}))"))
    await other.insert(teams[5:6])  # team-2, which gets team-1's former id
    await writer.insert([*teams[1:5], *teams[6:]])
    found = await SqlReports(engine).sums(SumsQuery(0, 2**62, ("team",)))
    assert {row.group["team"]: row.requests for row in found} == {"team-0": 3, "team-1": 3, "team-2": 3}
    for entry in teams:
        stored = await writer.get(entry.intent.request_id)
        assert stored is not None
        assert (stored.intent.team, stored.intent.requested_model) == (entry.intent.team, entry.intent.requested_model)
