"""No page and no batch scans a table that grows with traffic, by SQLite's plan of each statement."""

import re
import sys
import threading
from asyncio import Handle
from collections.abc import AsyncIterator, Awaitable, Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.economics.rent import RentHistory
from gateway.instants import DAY_US, HOUR_US
from gateway.ledger.entry import Entry, PaidTo
from gateway.reports.books import Books, BooksOf
from gateway.reports.views import CostQuery
from gateway.storage.database import migrate, open_database
from gateway.storage.sql.entries import SqlEntries
from gateway.storage.sql.keys import SqlKeyStore
from gateway.storage.sql.ledger import SqlLedger, entry_select
from gateway.storage.sql.reports import SqlReports
from gateway.storage.sums.by_dimension import narrowed
from gateway.storage.tables.books import entries
from gateway.stores import EntryWanted, NewKey
from gateway.sums import Dimension, Sums, SumsQuery
from tests.builders import make_snapshot
from tests.postgres_server import empty_postgres
from tests.unit.gateway.ledger.builders import failed_attempt, make_entry, make_intent

pytestmark = pytest.mark.integration
GROWING = ("entries", "attempts", "hourly", "daily")


WALK = re.compile(rf"SCAN ({'|'.join(GROWING)})\b(?! USING)")
MANY = [
    make_entry(n, intent=make_intent(n, team=f"team-{n}"), attempts=(failed_attempt(1), failed_attempt(2)))
    for n in range(5)
]


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    url = f"sqlite+aiosqlite:///{tmp_path / 'test.db'}"
    await migrate(url)
    opened = open_database(url)
    yield opened
    await opened.dispose()


async def asked_for(engine: AsyncEngine, question: Awaitable[object]) -> list[tuple[str, Any]]:
    """The statements executed, each with its parameters; for many, the first ones."""
    asked: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool) -> None:
        if not statement.startswith("BEGIN"):
            asked.append((statement, parameters[0] if executemany else parameters))

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    await question
    event.remove(engine.sync_engine, "before_cursor_execute", note)
    assert asked
    return asked


async def walks_of(engine: AsyncEngine, question: Awaitable[object]) -> list[str]:
    """The full scans in the plans of the executed statements."""
    return [step for step in await steps_of(engine, await asked_for(engine, question)) if WALK.match(step)]


async def steps_of(engine: AsyncEngine, asked: Sequence[tuple[str, Any]]) -> list[str]:
    async with engine.connect() as connection:
        plans = [await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", given) for sql, given in asked]
        return [step for plan in plans for step in plan.scalars("detail")]


async def test_a_batch_is_written_without_a_walk(sqlite: AsyncEngine) -> None:
    assert await walks_of(sqlite, SqlLedger(sqlite).insert(MANY)) == []


async def test_a_page_of_requests_is_read_without_a_walk(sqlite: AsyncEngine) -> None:
    await SqlLedger(sqlite).insert(MANY)
    newest = entry_select().order_by(entries.c.accepted_at_us.desc(), entries.c.request_id.desc()).limit(50)
    assert await walks_of(sqlite, SqlLedger(sqlite).select(newest)) == []


@pytest.mark.parametrize(
    ("wanted", "pages"),
    [
        (EntryWanted(team="nobody"), 0),
        (EntryWanted(tag="nothing", order="cost"), 0),
        (EntryWanted(team="team-3"), 1),
        (EntryWanted(rule="default"), 5),
        (EntryWanted(rule="default", limit=2), 2),
    ],
)
async def test_few_requests_among_many_are_read_from_their_hours_alone(
    sqlite: AsyncEngine, wanted: EntryWanted, pages: int
) -> None:
    hours = [make_intent(n, team=f"team-{n}", accepted_at_us=(500_000 + n) * HOUR_US) for n in range(5)]
    await SqlLedger(sqlite).insert([make_entry(n, intent=intent) for n, intent in enumerate(hours)])
    asked = await asked_for(sqlite, SqlEntries(sqlite).find(wanted))
    read = [given for sql, given in asked if "FROM entries JOIN" in sql]
    assert len(read) == pages
    assert sum("SELECT dimensions.id" in sql for sql, _ in asked) <= 2, "scanned once, not for each hour"


@pytest.mark.parametrize("before", [None, MANY[0].intent.request_id])
async def test_the_newest_requests_of_an_end_user_are_not_sorted_among_all_of_theirs(
    sqlite: AsyncEngine, before: str | None
) -> None:
    """An app may call each of its customers the same: a million took 3 s a page."""
    await SqlLedger(sqlite).insert(MANY)
    asked = await asked_for(sqlite, SqlEntries(sqlite).find(EntryWanted(end_user="anonymous", before=before, limit=2)))
    steps = await steps_of(sqlite, asked)
    assert any("ix_entries_end_user (end_user=? AND " in step for step in steps)
    assert not any("ORDER BY" in step for step in steps)


@pytest.mark.parametrize("by", [("model",), ("day", "model"), ("hour",)])
async def test_the_sums_of_one_key_are_looked_up_among_those_of_all(
    sqlite: AsyncEngine, by: tuple[Dimension, ...]
) -> None:
    """A year of 5,000 keys was read for one of them."""
    await SqlLedger(sqlite).insert(MANY)
    day = MANY[0].intent.accepted_at_us // DAY_US
    query = SumsQuery((day - 9) * DAY_US, (day + 9) * DAY_US, by, {"key": MANY[0].intent.key_id}, with_latencies=True)
    asked = await asked_for(sqlite, SqlReports(sqlite).sums(query))
    steps = await steps_of(sqlite, [one for one in asked if "sum(" in one[0] or "group_concat(" in one[0]])
    unit = "hour" if by == ("hour",) else "day"
    assert any(f"PRIMARY KEY ({unit}=? AND dimension_id=?)" in step for step in steps)
    assert not any(f"({unit}>?" in step for step in steps)


async def test_the_requests_of_a_cut_hour_are_summed_by_the_database(sqlite: AsyncEngine) -> None:
    await SqlLedger(sqlite).insert(MANY)
    half = MANY[0].intent.accepted_at_us // HOUR_US * HOUR_US + HOUR_US // 2
    asked = await asked_for(sqlite, SqlReports(sqlite).sums(SumsQuery(half - HOUR_US, half, ("team",))))
    assert any("FROM entries JOIN" in sql for sql, _ in asked)
    assert not any("entries.detail" in sql and "EXISTS" not in sql for sql, _ in asked)


@pytest.mark.parametrize("by", [("key",), (), ("end_user",)])
async def test_a_report_of_many_rows_lets_requests_in_between(sqlite: AsyncEngine, by: tuple[Dimension, ...]) -> None:
    """However many rows there are, the loop does a bounded amount of work at once, counted in function calls."""
    elsewhere = replace(failed_attempt(1), paid_to=PaidTo("company", "small", False, 0, 1))

    def entry(number: int) -> Entry:
        return make_entry(number, intent=make_intent(number, key_id=f"key-{number}"), attempts=(elsewhere,))

    query = SumsQuery(0, 2**62, by, with_latencies=True)
    await SqlLedger(sqlite).insert([entry(number) for number in range(300)])
    few = await calls_at_once(SqlReports(sqlite).sums(query))
    await SqlLedger(sqlite).insert([entry(number) for number in range(300, 3000)])
    assert await calls_at_once(SqlReports(sqlite).sums(query)) < 2 * few


async def test_groups_are_ordered_and_made_in_another_thread(
    sqlite: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorting 22,000 groups alone blocked the loop for a second."""
    threads: set[int] = set()

    def noting(*given: Any, **numbers: Any) -> Sums:
        threads.add(threading.get_ident())
        return Sums(*given, **numbers)

    def narrowing(figures: Any) -> list[Any]:
        threads.add(threading.get_ident())
        return narrowed(figures)

    monkeypatch.setattr("gateway.storage.sums.groups.Sums", noting)
    monkeypatch.setattr("gateway.storage.sums.by_dimension.narrowed", narrowing)
    await SqlLedger(sqlite).insert(MANY)
    assert len(await SqlReports(sqlite).sums(SumsQuery(0, 2**62, ("team",)))) == len(MANY)
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("by", ["team", "tag", "key,model,status"])
async def test_a_cost_report_reads_the_sums_once(sqlite: AsyncEngine, by: str) -> None:
    """And the sketches once: with 1.1 million rows each pass takes seconds."""

    async def no_rents() -> list[RentHistory]:
        return []

    await SqlLedger(sqlite).insert(MANY)
    days = MANY[0].intent.accepted_at_us // (24 * HOUR_US)
    since, until = (datetime.fromtimestamp((days + n) * 86_400, UTC) for n in (0, 1))
    snapshot = make_snapshot()
    books = Books(SqlReports(sqlite), BooksOf(lambda: snapshot, no_rents, lambda: 0))
    asked = await asked_for(sqlite, books.costs(CostQuery(by=by, since=since, until=until)))
    read = [sql for sql, _ in asked if "FROM daily" in sql or "FROM hourly JOIN" in sql]
    assert [sql.count("sketch") > 0 for sql in read] == [False, True]


@pytest.mark.parametrize("by", [(), ("team",)])
async def test_postgres_joins_the_sketches_of_a_group(postgres_directory: str, by: tuple[Dimension, ...]) -> None:
    """However many rows there are: fetching a quarter's one by one took two thirds of a report's time."""
    url = await empty_postgres(postgres_directory)
    await migrate(url)
    engine = open_database(url)
    await SqlLedger(engine).insert([make_entry(n, intent=make_intent(n, key_id=f"key-{n}")) for n in range(40)])
    asked = await asked_for(engine, SqlReports(engine).sums(SumsQuery(0, 2**62, by, with_latencies=True)))
    [[sql, given]] = [[sql, given] for sql, given in asked if "sketch" in sql]
    async with engine.connect() as connection:
        assert len((await connection.exec_driver_sql(sql, given)).all()) == 1
    await engine.dispose()


async def calls_at_once(question: Coroutine[Any, Any, object]) -> int:
    """The number of function calls in the longest turn of the loop."""
    turns = [0]

    def count(frame: FrameType, event_name: str, of: object) -> None:
        if event_name == "call":
            if frame.f_code is Handle._run.__code__:
                turns.append(0)
            turns[-1] += 1

    sys.setprofile(count)
    try:
        await question
    finally:
        sys.setprofile(None)
    return max(turns)


async def test_the_names_of_some_keys_are_read_alone(sqlite: AsyncEngine) -> None:
    keys = SqlKeyStore(sqlite, b"pepper")
    made = [(await keys.create(NewKey(name=f"number {n}"), author="me"))[0].record.id for n in range(3)]
    asked = await asked_for(sqlite, SqlReports(sqlite).key_names(made[:2]))
    assert [sorted(given) for _, given in asked] == [sorted(made[:2])]
    assert await SqlReports(sqlite).key_names([*made[1:], "key_gone"]) == {made[1]: "number 1", made[2]: "number 2"}
