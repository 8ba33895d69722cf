"""The migrations result in the declared tables, on both databases, up and down."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Row, inspect, select

from gateway.errors import StateError
from gateway.ledger.entry import Cost
from gateway.pricing.reprice import REASONS
from gateway.storage.database import migrate, open_database
from gateway.storage.later_work import LaterWork
from gateway.storage.revisions import known_revisions, present_revision
from gateway.storage.schema import revisions
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.storage.tables import metadata
from gateway.storage.tables.books import daily, hourly
from gateway.stores import Adjustment
from gateway.sums import Dimension, SumsQuery
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = pytest.mark.integration


def differences(connection: Connection) -> list[Any]:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return list(compare_metadata(context, metadata))


def table_names(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names()) - {"alembic_version"}


async def test_up_equals_the_tables_and_down_leaves_nothing(database_url: str) -> None:
    await migrate(database_url)
    await migrate(database_url)
    engine = open_database(database_url)
    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []
        assert await connection.run_sync(table_names) == set(metadata.tables)
    await migrate(database_url, "base")
    async with engine.connect() as connection:
        assert await connection.run_sync(table_names) == set()
    await migrate(database_url)
    await engine.dispose()


def test_the_files_are_the_steps_in_their_order() -> None:
    assert known_revisions() == [one.number for one in revisions()]


async def test_every_step_goes_up_and_down(database_url: str) -> None:
    """Down to where an older version can read it, with its content, and up again."""
    await migrate(database_url, "0002")
    await migrate(database_url)
    engine = open_database(database_url)
    await SqlLedger(engine).insert([make_entry(1)])
    for revision in ("0009", "0008", "0009"):
        await migrate(database_url, revision)
        async with engine.connect() as connection:
            assert await connection.run_sync(present_revision) == revision
    await migrate(database_url)
    await SqlLedger(engine).insert([make_entry(2)])
    assert [row.requests for row in await SqlReports(engine).sums(SumsQuery(0, 2**60, ("model",)))] == [2]
    await engine.dispose()


async def test_several_processes_may_migrate_at_once(database_url: str) -> None:
    await asyncio.gather(*(migrate(database_url) for _ in range(4)))
    engine = open_database(database_url)
    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []
    await engine.dispose()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE alembic_version SET version_num = '9999'", "newer Breakeven"),
        ("INSERT INTO alembic_version VALUES ('9999')", "and 9999, and a schema is at one: leave the row"),
    ],
)
async def test_a_newer_or_doubtful_schema_is_refused(database_url: str, change: str, told: str) -> None:
    await migrate(database_url)
    engine = open_database(database_url)
    async with engine.begin() as connection:
        await connection.exec_driver_sql(change)
    with pytest.raises(StateError, match=told):
        await migrate(database_url)
    await engine.dispose()


@pytest.mark.parametrize("url", ["mysql://localhost/x", "nonsense", "sqlite+aiosqlite:////proc/nowhere/x.db"])
async def test_an_unusable_database_is_an_error_in_a_sentence(url: str) -> None:
    with pytest.raises(StateError, match="cannot use"):
        await migrate(url)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    file.write_bytes(b"this is not a database at all" * 50)
    with pytest.raises(StateError, match="cannot use the database"):
        await migrate(f"sqlite+aiosqlite:///{file}")


async def test_daily_sums_are_filled_from_the_hours_of_an_older_database(database_url: str) -> None:
    await migrate(database_url)
    engine = open_database(database_url)
    await SqlLedger(engine).insert([make_entry(n, intent=make_intent(n * 10_000_000)) for n in range(60)])
    everything = SumsQuery(0, 2**60, ("model",), with_latencies=True)
    before = await SqlReports(engine).sums(everything)
    await migrate(database_url, "0001")
    await migrate(database_url)
    assert await SqlReports(engine).sums(everything) == before
    assert before[0].requests == 60
    await engine.dispose()


async def test_first_prices_of_an_older_database_are_counted(database_url: str) -> None:
    await migrate(database_url)
    engine = open_database(database_url)
    numbers = range(0, 100_000, 10_000)
    unpriced = {"cost": None, "cost_lower_pico_usd": None, "cost_upper_pico_usd": None}
    await SqlLedger(engine).insert([make_entry(n, intent=make_intent(n * 1_000_000), **unpriced) for n in numbers])
    ids = [make_intent(n * 1_000_000).request_id for n in numbers][:7]
    for reference, reason in (("v#0", REASONS["unpriced"]), ("w#1", REASONS["corrected"])):
        batch = [Adjustment(one, "reprice", reference, 9, reason) for one in ids]
        assert await SqlAdjustments(engine, trusts_clock=True).book(batch, author="ada") == 7
    times: tuple[tuple[Dimension, ...], ...] = ((), ("hour",), ("day",))
    queries = [SumsQuery(0, 2**60, by) for by in times]
    before = [await SqlReports(engine).sums(query) for query in queries]
    await migrate(database_url, "0015")
    await migrate(database_url)
    assert [await SqlReports(engine).sums(query) for query in queries] == before
    assert [sum(row.priced_later_requests for row in rows) for rows in before] == [7, 7, 7]
    await engine.dispose()


async def test_the_largest_figures_of_an_older_database_are_found(database_url: str) -> None:
    """Including corrections, as the ledger itself maintains them."""
    await migrate(database_url)
    engine = open_database(database_url)
    numbers = range(0, 100_000, 10_000)
    made = [
        make_entry(
            n, intent=make_intent(n * 1_000_000), cost=Cost(input_pico_usd=n, output_pico_usd=7, list_pico_usd=9)
        )
        for n in numbers
    ]
    await SqlLedger(engine).insert([*made, make_entry(5, intent=make_intent(5), cost=None)])
    batch = [Adjustment(one.intent.request_id, "refund", "credit-7", 10**9, "late") for one in made[:3]]
    assert await SqlAdjustments(engine, trusts_clock=True).book(batch, author="ada") == len(batch)

    async def rows() -> list[Row[Any]]:
        async with engine.connect() as connection:
            found = [await connection.execute(select(one).order_by(*one.primary_key)) for one in (hourly, daily)]
            return [row for one in found for row in one]

    before = await rows()
    await migrate(database_url, "0018")
    await migrate(database_url)
    assert await LaterWork(database_url).do()
    assert await rows() == before
    assert {row.largest_pico_usd for row in before} >= {10**9 + 20_007, 90_007}
    await engine.dispose()
