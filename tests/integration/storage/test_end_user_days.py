"""What budgets count of each end user, on both databases: the same as the reports' requests, whatever was corrected."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import date

import pytest
from msgspec.structs import replace
from sqlalchemy import delete, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.clock import now_us
from gateway.instants import DAY_US
from gateway.ledger.entry import Entry, Status
from gateway.limits.counters import budget_account
from gateway.limits.spending import counted_pico_usd
from gateway.limits.values import WindowName, window_end, window_id, window_start
from gateway.storage.database import migrate, open_database, writing
from gateway.storage.repair import repair_end_users
from gateway.storage.retention import apply_retention, forget_end_user
from gateway.storage.row_writer import RowWriter
from gateway.storage.rows.entry_rows import entry_rows
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.storage.sums.end_users import EndUserDays
from gateway.storage.tables.books import end_user_days
from gateway.stores import Adjustment
from gateway.sums import SumsQuery
from tests.integration.storage.booked import random_entry
from tests.integration.storage.test_later_work import until
from tests.integration.storage.test_verification import verified
from tests.newest_schema import make_newest
from tests.postgres_server import empty_postgres
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = pytest.mark.integration
START_US = make_intent(0).accepted_at_us
"""The first of January."""


async def booked(engine: AsyncEngine, *, first: int = 0, later_us: int = 0) -> list[Entry]:
    """Requests of every status over forty days, sent twice in overlapping batches, and corrections of a third."""
    chance = random.Random(11)
    found = [moved(random_entry(chance, number), later_us) for number in range(first, first + 90)]
    ledger = SqlLedger(engine)
    await ledger.insert(found[:60])
    await ledger.insert(found[30:])
    refunds = [Adjustment(one.intent.request_id, "refund", "r", -number, "r") for number, one in enumerate(found[::3])]
    corrections = SqlAdjustments(engine, trusts_clock=True)
    for _ in range(2):
        await corrections.book(refunds, author="test")
    return found


def moved(entry: Entry, later_us: int) -> Entry:
    intent = replace(entry.intent, accepted_at_us=entry.intent.accepted_at_us + later_us)
    return replace(entry, intent=intent)


async def spent(engine: AsyncEngine, key_id: str, end_user: str, window: WindowName, at_us: int) -> int:
    account = budget_account(f"{key_id}:{end_user}", window_id(window, at_us), scope="end_user")
    return (await EndUserDays(engine)([account]))[account]


async def rows(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        return (await connection.execute(select(func.count()).select_from(end_user_days))).scalar_one()


@pytest.mark.parametrize("window", ["day", "month"])
async def test_of_each_end_user_it_is_what_budgets_count_of_the_requests(
    engine: AsyncEngine, window: WindowName
) -> None:
    found = await booked(engine)
    assert {one.status for one in found} == set(Status)
    moments = [START_US + number * DAY_US for number in range(40)]
    starts = {window_start(window, at_us): at_us for at_us in moments}
    for start, at_us in starts.items():
        end = window_end(window, at_us)
        assert end is not None
        query = SumsQuery(
            round(start.timestamp()) * 1_000_000, round(end.timestamp()) * 1_000_000, ("key", "end_user", "status")
        )
        counted = Counter[tuple[str, str]]()
        for row in await SqlReports(engine).sums(query):
            if (end_user := row.group["end_user"]) is not None:
                counted[row.group["key"] or "", end_user] += counted_pico_usd(row)
        accounts = {
            budget_account(f"{key}:{name}", window_id(window, at_us), scope="end_user"): total
            for (key, name), total in counted.items()
        }
        nobody = budget_account("k:nobody", window_id(window, at_us), scope="end_user")
        assert await EndUserDays(engine)([*accounts, nobody]) == {**accounts, nobody: 0}


async def test_a_forgotten_end_user_begins_again_and_everything_adds_up(engine: AsyncEngine) -> None:
    key = (await booked(engine))[1].intent.key_id
    others = await spent(engine, key, "user 2", "month", START_US)
    assert await spent(engine, key, "user 1", "month", START_US)
    await forget_end_user(engine, "user 1", now_us=START_US, author="test", part=7)
    assert await spent(engine, key, "user 1", "month", START_US) == 0
    assert await spent(engine, key, "user 2", "month", START_US) == others
    assert [one for one in await verified(engine) if one.mismatches] == []


async def test_they_go_with_their_month(engine: AsyncEngine) -> None:
    key = (await booked(engine))[1].intent.key_id
    january, february = START_US, START_US + 31 * DAY_US
    for day in (32, 34):
        assert await spent(engine, key, "user 1", "month", january)
        await apply_retention(engine, requests_days=None, bodies_days=1, now_us=START_US + day * DAY_US)
    assert await spent(engine, key, "user 1", "month", january) == 0
    assert await spent(engine, key, "user 1", "month", february)
    await apply_retention(engine, requests_days=None, bodies_days=1, now_us=START_US + 90 * DAY_US)
    assert await rows(engine) == 0


async def test_requests_without_an_end_user_are_in_no_row(engine: AsyncEngine) -> None:
    await SqlLedger(engine).insert([make_entry(1), make_entry(2, intent=make_intent(2, end_user="one"), cost=None)])
    assert await rows(engine) == 0


async def leave_out(engine: AsyncEngine) -> None:
    """As an older replica does: of some nothing is there, of others too little, and of the forgotten too much."""
    each = end_user_days.c
    async with writing(engine) as connection:
        await connection.execute(update(end_user_days).values(counted_pico_usd=each.counted_pico_usd // 2))
        await connection.execute(delete(end_user_days).where(each.end_user == "user 1"))
        await connection.execute(
            update(end_user_days).where(each.end_user == "user 2").values(end_user="one who was forgotten")
        )


async def repair(engine: AsyncEngine) -> set[date]:
    """Returns the days that did not add up."""
    wrong = {one.day for one in await verified(engine) if one.mismatches}
    for day in sorted(wrong):
        await repair_end_users(engine, day, author="test")
    return wrong


async def test_what_an_older_replica_left_out_is_added_up_again_beside_whoever_writes(engine: AsyncEngine) -> None:
    found = await booked(engine)
    await leave_out(engine)
    more = [random_entry(random.Random(number), number) for number in range(100, 132)]
    refunds = [Adjustment(one.intent.request_id, "refund", "again", -1, "r") for one in found]

    async def book() -> None:
        for number in range(0, len(more), 4):
            await SqlLedger(engine).insert(more[number : number + 4])

    async def correct() -> None:
        for number in range(0, len(refunds), 30):
            await SqlAdjustments(engine, trusts_clock=True).book(refunds[number : number + 30], author="test")

    forget = forget_end_user(engine, "user 0", now_us=START_US, author="test", part=3)
    wrong, *_ = await asyncio.gather(repair(engine), book(), correct(), forget)
    assert len(wrong) > 20
    assert [one for one in await verified(engine) if one.mismatches] == []
    assert await spent(engine, found[1].intent.key_id, "user 1", "month", START_US)
    assert await spent(engine, found[1].intent.key_id, "one who was forgotten", "month", START_US) == 0


async def test_a_booking_that_is_under_way_is_in_what_is_added_up_again(postgres_directory: str) -> None:
    url = await empty_postgres(postgres_directory)
    await make_newest(url)
    engine = open_database(url)
    one, other = (make_entry(number, intent=make_intent(number, end_user="user 1")) for number in (1, 2))
    await SqlLedger(engine).insert([one])
    await leave_out(engine)
    async with writing(engine) as connection:
        await connection.run_sync(RowWriter().write, [entry_rows(other)])
        repairing = asyncio.create_task(repair(engine))

        async def does_it_wait(connection: AsyncConnection) -> AsyncIterator[bool]:
            while True:
                yield await connection.scalar(text("SELECT 1 FROM pg_locks WHERE NOT granted")) is not None

        await until(does_it_wait(connection))
    await repairing
    assert [day for day in await verified(engine) if day.mismatches] == []
    await engine.dispose()


async def test_an_older_database_is_filled_from_requests_of_every_day_that_is_kept(database_url: str) -> None:
    await migrate(database_url)
    engine = open_database(database_url)
    await booked(engine)
    old = await rows(engine)
    await booked(engine, first=90, later_us=now_us() - START_US - 33 * DAY_US)
    query = select(end_user_days).order_by(*end_user_days.primary_key)
    async with engine.connect() as connection:
        before = (await connection.execute(query)).all()
    await migrate(database_url, "0026")
    await migrate(database_url)
    async with engine.connect() as connection:
        after = (await connection.execute(query)).all()
    await engine.dispose()
    assert 0 < len(after) == len(before) - old
    assert set(after) < set(before)
