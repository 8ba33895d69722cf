"""Work that migrations defer while the gateway reads and writes: it is done once, and if the process is killed, the
next one completes it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from sqlalchemy import Row, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.errors import BreakevenError
from gateway.instants import DAY_US, HOUR_US
from gateway.ledger.entry import Cost, Entry
from gateway.storage.database import LATER_LOCK, lock, migrate, open_database, writing
from gateway.storage.later_work import LaterWork
from gateway.storage.partition_indexes import lacking_parts
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.tables.administration import state
from gateway.storage.tables.books import daily, hourly
from tests.postgres_server import empty_postgres
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
INDEXES = ("ix_entries_batch_id", "ix_entries_end_user")
START_US = make_intent(0).accepted_at_us  # the first of January
SOON_SECONDS = 60


def requests(numbers: Sequence[int], every_us: int = HOUR_US) -> list[Entry]:
    """Requests at equal intervals, each with its number as cost."""
    return [
        make_entry(
            n,
            intent=make_intent(n, accepted_at_us=START_US + n * every_us),
            cost=Cost(input_pico_usd=n, output_pico_usd=7, list_pico_usd=9),
        )
        for n in numbers
    ]


async def rows(engine: AsyncEngine) -> list[Row[Any]]:
    """The rows of both rollups, in order."""
    async with engine.connect() as connection:
        found = [await connection.execute(select(one).order_by(*one.primary_key)) for one in (hourly, daily)]
        return [row for one in found for row in one]


async def until(is_so: AsyncIterator[bool]) -> None:
    async with asyncio.timeout(SOON_SECONDS):
        async for found in is_so:
            if found:
                return
            await asyncio.sleep(0.02)


@pytest.fixture
async def older(postgres_directory: str) -> AsyncIterator[tuple[str, AsyncEngine]]:
    """A ledger of two months, as left by a version without the indexes: its URL, and an engine."""
    url = await empty_postgres(postgres_directory)
    await migrate(url)
    engine = open_database(url)
    await SqlLedger(engine).insert(requests((1, 2, 40), DAY_US))
    await migrate(url, "0019")
    yield url, engine
    await engine.dispose()


async def test_months_that_are_there_get_their_part_of_an_index(older: tuple[str, AsyncEngine]) -> None:
    url, engine = older
    await migrate(url)
    assert [(one.whole, one.partition) for one in await lacking_parts(engine)] == [
        (index, month) for month in ("entries_2026_02", "entries_2026_01") for index in INDEXES
    ]
    await SqlLedger(engine).insert(requests((70,), DAY_US))  # a month that begins meanwhile
    assert len(await lacking_parts(engine)) == 4
    assert await LaterWork(url).do()
    assert await lacking_parts(engine) == []
    async with engine.connect() as connection:
        of_entries = "FROM pg_index JOIN pg_class ON oid = indexrelid WHERE relname ~ 'entries_.*(batch_id|end_user)'"
        valid = f"SELECT count(*) {of_entries} AND {{}}"
        counts = [await connection.scalar(text(valid.format(one))) for one in ("indisvalid", "NOT indisvalid")]
    assert counts == [8, 0]  # of each the parent's, and three months'


async def test_a_build_that_was_killed_is_begun_anew(older: tuple[str, AsyncEngine]) -> None:
    """A build waits for writers, so an open transaction stops it halfway."""
    url, engine = older
    await migrate(url)
    part = text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('entries_2026_02_batch_id')")
    builder = text("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_progress_create_index")
    async with engine.connect() as writer, engine.connect() as other:
        await writer.execute(text("UPDATE entries SET batch_id = 'b' WHERE accepted_at_us > 0"))

        async def is_half_built() -> AsyncIterator[bool]:
            while True:
                yield (await other.execute(part)).scalar() is False
                await other.rollback()

        building = asyncio.create_task(LaterWork(url).do())
        await until(is_half_built())
        await other.execute(builder)
        with pytest.raises(BreakevenError):
            await building
        assert (await other.execute(part)).scalar() is False
    assert await LaterWork(url).do()
    assert await lacking_parts(engine) == []
    async with engine.connect() as connection:
        assert (await connection.execute(part)).scalar() is True


async def test_a_step_that_has_to_wait_lets_writers_pass(older: tuple[str, AsyncEngine]) -> None:
    """A backup reads for an hour: everyone behind a step that waits for it would wait as long."""
    url, engine = older
    async with engine.connect() as backup:
        await backup.execute(text("SELECT count(*) FROM entries"))
        migrating = asyncio.create_task(migrate(url))
        waiting = text("SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'")

        async def does_it_wait() -> AsyncIterator[bool]:
            while True:
                yield await backup.scalar(waiting) is not None

        await until(does_it_wait())
        async with asyncio.timeout(SOON_SECONDS), writing(engine) as writer:
            await writer.execute(text("UPDATE entries SET gpu_us = 1"))
        assert not migrating.done()
    await migrating


async def test_of_several_processes_one_does_it(older: tuple[str, AsyncEngine]) -> None:
    url, engine = older
    await migrate(url)
    work = LaterWork(url)
    async with engine.begin() as another:
        await lock(another, LATER_LOCK)
        assert not await work.do()
    assert len(await lacking_parts(engine)) == 4
    assert await work.do()


async def test_hours_are_ranked_with_what_came_meanwhile(database_url: str) -> None:
    await migrate(database_url)
    engine = open_database(database_url)
    await SqlLedger(engine).insert(requests(range(0, 60, 5)))
    await migrate(database_url, "0018")
    await migrate(database_url)
    unranked = await rows(engine)
    await SqlLedger(engine).insert(requests(range(0, 60, 3)))
    assert await LaterWork(database_url).do()
    ranked = await rows(engine)
    assert {row.ranked for row in unranked} == {0}
    assert all(row.ranked == row.requests for row in ranked)
    assert [row.largest_pico_usd for row in ranked[:3]] == [7, 10, 12]
    async with engine.connect() as connection:
        assert (await connection.execute(select(state))).all() == []
    await engine.dispose()


async def test_an_hour_that_somebody_adds_to_is_ranked_after_that(postgres_directory: str) -> None:
    url = await empty_postgres(postgres_directory)
    await migrate(url)
    engine = open_database(url)
    await SqlLedger(engine).insert(requests((1, 2)))
    await migrate(url, "0018")
    await migrate(url)
    async with writing(engine) as older_replica:
        await older_replica.execute(text("UPDATE hourly SET requests = requests + 1"))
        ranking = asyncio.create_task(LaterWork(url).do())

        async def does_it_wait(connection: AsyncConnection) -> AsyncIterator[bool]:
            while True:
                yield await connection.scalar(text("SELECT 1 FROM pg_locks WHERE NOT granted")) is not None

        await until(does_it_wait(older_replica))
    assert await ranking
    assert [(row.requests, row.ranked) for row in (await rows(engine))[:2]] == [(2, 2), (2, 2)]
    await engine.dispose()


async def test_a_day_that_an_older_replica_added_to_is_not_taken_for_ranked(database_url: str) -> None:
    """It may have added a larger figure, so the requests themselves are read."""
    await migrate(database_url)
    engine = open_database(database_url)
    await SqlLedger(engine).insert(requests((1, 2)))
    await migrate(database_url, "0018")
    await migrate(database_url)
    async with writing(engine) as connection:
        await connection.execute(text("UPDATE daily SET requests = requests + 1"))  # its hour is after the last
    assert await LaterWork(database_url).do()
    *_, day = await rows(engine)
    assert (day.requests, day.ranked) == (3, 2)
    await engine.dispose()
