"""Old data is deleted on both databases, sums stay, and late entries are booked nevertheless."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.clock import now_us
from gateway.errors import DatabaseDown
from gateway.instants import DAY_US
from gateway.kept_answers.body_keeper import Bodies
from gateway.ledger.shipper import Shipper
from gateway.storage.database import migrate, open_database
from gateway.storage.retention import EndUserForgotten, Forgotten, apply_retention, forget_end_user
from gateway.storage.sql.audit import SqlAuditLog
from gateway.storage.sql.bodies import SqlBodies
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.storage.tables.books import end_user_days, entries, hourly
from gateway.sums import SumsQuery
from tests.postgres_server import empty_postgres
from tests.unit.gateway.ledger.builders import make_entry, make_intent, request_id
from tests.unit.gateway.ledger.journals import open_journal

pytestmark = pytest.mark.integration
PATIENCE_SECONDS = 60
START_US = make_intent(0).accepted_at_us  # the first of January
NOW_US = START_US + 100 * DAY_US


async def counts(engine: AsyncEngine) -> tuple[int, int]:
    """(number of single requests, number of requests in the sums)."""
    async with engine.connect() as connection:
        rows = (await connection.execute(select(func.count()).select_from(entries))).scalar_one()
        return rows, (await connection.execute(select(func.sum(hourly.c.requests)))).scalar_one()


async def test_old_months_and_texts_go_and_the_audit_log_says_so(engine: AsyncEngine) -> None:
    days = (0, 20, 40, 60, 80, 99)
    ledger = SqlLedger(engine)
    await ledger.insert(
        [make_entry(n, intent=make_intent(n, accepted_at_us=START_US + day * DAY_US)) for n, day in enumerate(days)]
    )
    for number, day in enumerate(days):
        store = SqlBodies(engine, os.urandom(32), now_us=lambda day=day: START_US + day * DAY_US)
        await store.put([Bodies(request_id(number), "key_1", b"prompt", b"answer")])
    forgotten = await apply_retention(engine, requests_days=30, bodies_days=50, now_us=NOW_US)
    assert forgotten == Forgotten(["2026-01", "2026-02"], 3)  # 30 days before the 10th of April is in March
    assert await counts(engine) == (3, 6)
    assert await apply_retention(engine, requests_days=30, bodies_days=50, now_us=NOW_US) == Forgotten([], 0)
    [record] = await SqlAuditLog(engine).page(before=None, limit=10)
    assert (record.action, record.actor) == ("retention", "retention")


async def test_a_forgotten_end_user_is_in_no_request_and_no_audit_record_and_their_texts_are_gone(
    engine: AsyncEngine,
) -> None:
    intents = [make_intent(n, end_user=f"user {min(n, 1)}") for n in range(4)]
    await SqlLedger(engine).insert([make_entry(n, intent=one) for n, one in enumerate(intents)])
    store = SqlBodies(engine, os.urandom(32))
    await store.put([Bodies(request_id(number), "key_1", b"prompt", b"answer") for number in (0, 1)])
    forgotten = await forget_end_user(engine, "user 1", now_us=NOW_US, author="ada", part=2)
    assert forgotten == EndUserForgotten(requests=3, bodies=1)
    assert [await store.get(request_id(n)) is not None for n in (0, 1)] == [True, False]
    rows = await SqlReports(engine).sums(SumsQuery(0, NOW_US, ("end_user",)))
    assert [(row.group["end_user"], row.requests) for row in rows] == [(None, 3), ("user 0", 1)]
    [record] = await SqlAuditLog(engine).page(before=None, limit=10)
    assert (record.action, "user 1" in str(record)) == ("end_user.forget", False)
    assert await forget_end_user(engine, "user 1", now_us=NOW_US, author="ada") == EndUserForgotten(0, 0)


UNDELETABLE = {
    "sqlite": ["CREATE TRIGGER no BEFORE DELETE ON request_bodies BEGIN SELECT RAISE(ABORT, 'pulled the plug'); END"],
    "postgresql": [
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'pulled the plug'; END $$",
        "CREATE TRIGGER no BEFORE DELETE ON request_bodies EXECUTE FUNCTION no()",
    ],
}


async def test_one_that_ends_on_the_way_is_in_the_audit_log(engine: AsyncEngine) -> None:
    await SqlLedger(engine).insert([make_entry(1)])
    await SqlBodies(engine, os.urandom(32), now_us=lambda: START_US).put([Bodies(request_id(1), "key_1", b"a", b"b")])
    async with engine.begin() as connection:
        for statement in UNDELETABLE[engine.dialect.name]:
            await connection.execute(text(statement))
    with pytest.raises(DBAPIError, match="pulled the plug"):
        await apply_retention(engine, requests_days=30, bodies_days=30, now_us=NOW_US)
    [record] = await SqlAuditLog(engine).page(before=None, limit=10)
    assert json.loads(record.detail) == {"months": ["2026-01"], "bodies": 1}


async def test_two_at_once_are_one_in_the_audit_log(engine: AsyncEngine) -> None:
    await SqlLedger(engine).insert([make_entry(1)])
    both = [apply_retention(engine, requests_days=30, bodies_days=30, now_us=NOW_US) for _ in range(2)]
    found = await asyncio.gather(*both)
    records = await SqlAuditLog(engine).page(before=None, limit=10)
    assert len(records) == sum(bool(one.months) for one in found)
    if engine.dialect.name == "postgresql":  # with SQLite there is only one gateway
        assert len(records) == 1


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_replica_whose_clock_is_ahead_of_the_servers_deletes_nothing_sooner(engine: AsyncEngine) -> None:
    intent = make_intent(1, accepted_at_us=now_us(), end_user="ann")
    await SqlLedger(engine).insert([make_entry(1, intent=intent)])
    forgotten = await apply_retention(engine, requests_days=30, bodies_days=30, now_us=now_us() + 400 * DAY_US)
    assert (forgotten, await counts(engine)) == (Forgotten([], 0), (1, 1))
    async with engine.connect() as connection:
        assert (await connection.execute(select(func.count()).select_from(end_user_days))).scalar_one() == 1


async def test_who_reads_for_long_holds_up_a_new_month_not_at_all_and_retention_for_moments(
    postgres_directory: str,
) -> None:
    """A backup, say."""
    url = await empty_postgres(postgres_directory)
    await migrate(url)
    engine = open_database(url)
    ledger, texts = SqlLedger(engine), SqlBodies(engine, os.urandom(32), now_us=lambda: START_US)
    await ledger.insert([make_entry(1)])
    await texts.put([Bodies(request_id(1), "key_1", b"prompt", b"answer")])
    async with engine.connect() as reader:
        await reader.execute(select(func.count()).select_from(entries))
        later = make_intent(2, accepted_at_us=START_US + 40 * DAY_US)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await ledger.insert([make_entry(2, intent=later)]) == 1
            with pytest.raises(DatabaseDown, match="lock timeout"):
                await apply_retention(engine, requests_days=30, bodies_days=30, now_us=NOW_US)
    assert (await counts(engine)) == (2, 2)
    assert await texts.get(request_id(1)) is None, "its text waits for nobody"
    forgotten = await apply_retention(engine, requests_days=30, bodies_days=30, now_us=NOW_US)
    assert forgotten == Forgotten(["2026-01", "2026-02"], 0)
    assert (await counts(engine)) == (0, 2)
    await engine.dispose()


async def test_requests_are_kept_for_ever_unless_told_otherwise(engine: AsyncEngine) -> None:
    await SqlLedger(engine).insert([make_entry(1)])
    forgotten = await apply_retention(engine, requests_days=None, bodies_days=1, now_us=START_US + 5000 * DAY_US)
    assert forgotten == Forgotten([], 0)
    assert await counts(engine) == (1, 1)


async def test_an_entry_that_comes_after_its_month_was_dropped_is_booked_at_the_next_try(engine: AsyncEngine) -> None:
    ledger = SqlLedger(engine)
    await ledger.insert([make_entry(1)])
    await apply_retention(engine, requests_days=30, bodies_days=30, now_us=NOW_US)  # by another process
    late = [make_entry(2)]
    try:
        await ledger.insert(late)
    except Exception:  # noqa: BLE001 - as the shipper does: whatever the database says, again
        await ledger.insert(late)
    assert await counts(engine) == (1, 2)


async def test_what_was_forgotten_stays_so_when_the_journal_that_still_has_it_is_opened_again(
    engine: AsyncEngine, tmp_path: Path
) -> None:
    journal = open_journal(tmp_path / "journal")
    for number in range(3):
        journal.intend(make_intent(number))
        await journal.settle(make_entry(number))
    assert await Shipper(journal, SqlLedger(engine)).drain(PATIENCE_SECONDS)
    await journal.aclose()
    await apply_retention(engine, requests_days=1, bodies_days=1, now_us=NOW_US)
    assert await counts(engine) == (0, 3)

    again = open_journal(tmp_path / "journal")
    assert await Shipper(again, SqlLedger(engine)).drain(PATIENCE_SECONDS)
    await again.aclose()
    assert await counts(engine) == (0, 3)
