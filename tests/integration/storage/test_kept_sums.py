"""Cached sums, and those added up by numpy, equal the database's own, on both databases."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import cycle, product

import pytest
from sqlalchemy import event, select, true, update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.instants import DAY_US
from gateway.instants import microseconds as us
from gateway.ledger.entry import Entry
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.storage.sums.by_dimension import MOST
from gateway.storage.sums.kept_sums import KeptSums
from gateway.storage.tables.books import daily
from gateway.stores import Adjustment
from gateway.sums import Dimension, Sums, SumsQuery
from tests.integration.storage.booked import GROUPINGS, PERIODS, START, TIMED
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = pytest.mark.integration
WHOLE = SumsQuery(us(START), us(START + timedelta(days=8)), ("team", "key"))
UNTIMED: list[tuple[Dimension, ...]] = [
    *(by for by in GROUPINGS if by and by not in TIMED),
    ("key", "tag", "is_simulated"),
    ("tags", "status"),
]
FILTERS: list[dict[Dimension, str | None]] = [{}, {"tag": "eu"}, {"team": None}, {"team": "nobody"}]


async def test_groups_of_dimensions_are_those_that_the_database_makes(
    engine: AsyncEngine, stored: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each grouping in each period, with the filters in turn."""
    reports = SqlReports(engine)
    for (by, (since, until)), filters in zip(product(UNTIMED, PERIODS), cycle(FILTERS), strict=False):
        query = SumsQuery(us(since), us(until), by, filters)
        found = await reports.sums(query)
        with monkeypatch.context() as patch:
            patch.setattr("gateway.storage.sql.reports.MOST_DIMENSIONS", 0)
            patch.setattr("gateway.storage.sums.filtered_rows.MOST_LOOKUPS", 0)
            assert await reports.sums(query) == found, query


@pytest.mark.parametrize("is_one_dimensions", [False, True])
async def test_money_beyond_64_bits_is_exact(engine: AsyncEngine, stored: list[Entry], is_one_dimensions: bool) -> None:
    """For a single dimension's days, which do not fit a numpy column, and for groups of several."""
    period = replace(WHOLE, since_us=us(START - timedelta(days=1)) // DAY_US * DAY_US)
    added = sum(one.output_pico_usd for one in await SqlReports(engine).sums(period))
    async with engine.begin() as connection:
        first = (await connection.execute(select(daily).limit(1))).mappings().one()
        wanted = daily.c.dimension_id == first["dimension_id"] if is_one_dimensions else true()
        before = (await connection.execute(select(daily.c.output_pico_usd).where(wanted))).scalars().all()
        await connection.execute(update(daily).where(wanted).values(output_pico_usd=MOST - 1))
        another = {**first, "day": us(START + timedelta(days=6)) // DAY_US, "output_pico_usd": MOST - 1}
        await connection.execute(daily.insert().values(another))
    added += (len(before) + 1) * (MOST - 1) - sum(before)
    groupings: list[tuple[Dimension, ...]] = [
        ("team", "key"),
        ("status",),
        ("is_simulated",),
        ("day",),
        ("month", "team"),
    ]
    for by in groupings:
        found = await SqlReports(engine).sums(replace(period, by=by))
        assert sum(one.output_pico_usd for one in found) == added


async def test_what_is_booked_or_corrected_late_is_in_the_next_report(engine: AsyncEngine, stored: list[Entry]) -> None:
    reports = SqlReports(engine)
    before = await reports.sums_together([WHOLE, replace(WHOLE, by=("day",))])
    assert await reports.sums_together([WHOLE, replace(WHOLE, by=("day",))]) == before
    late = make_entry(9_999, intent=make_intent(9_999, accepted_at_us=us(START + timedelta(hours=3)), team="new"))
    assert await SqlLedger(engine).insert([late]) == 1
    assert _total(await reports.sums(WHOLE)) == (len(stored) + 1, _cost(before[0]) + _cost_of(late), 0)
    days = [one.requests for one in before[1]]
    assert [one.requests for one in await reports.sums(replace(WHOLE, by=("day",)))] == [days[0] + 1, *days[1:]]
    credit = Adjustment(stored[0].intent.request_id, "refund", "an outage", -7, "an outage")
    assert await SqlAdjustments(engine).book([credit], author="test") == 1
    assert _total(await reports.sums(WHOLE)) == (len(stored) + 1, _cost(before[0]) + _cost_of(late), -7)


async def test_money_alone_is_the_same_money(engine: AsyncEngine, stored: list[Entry]) -> None:
    reports = SqlReports(engine)
    for by in GROUPINGS:
        whole = await reports.sums(replace(WHOLE, by=by))
        alone = await reports.sums(replace(WHOLE, by=by, money_alone=True))
        money = [[(one.group, *_money(one), one.upper_pico_usd) for one in rows] for rows in (whole, alone)]
        assert money[0] == money[1]
        assert not any(one.input_tokens or one.lower_pico_usd for one in alone)


async def test_days_are_read_once_while_nothing_is_added_to_them(engine: AsyncEngine, stored: list[Entry]) -> None:
    """Both sums and sketches: for 300,000 rows each takes a second of CPU."""
    reports, queries = SqlReports(engine), [replace(WHOLE, with_latencies=True), replace(WHOLE, by=("team",))]
    first = await _statements(engine, reports, queries)
    assert sum("FROM daily" in one and "requests" in one and "output_tokens" in one for one in first) == 1
    again = await _statements(engine, reports, queries)
    assert not any("output_tokens" in one or "sketch" in one for one in again if "FROM daily" in one)
    assert sum("FROM daily" in one for one in again) == 1, "whether they are valid is read once too"


@pytest.mark.parametrize(("by", "parts"), [(("day",), 2), (("month", "team"), 2), (("week",), 3), (("team",), 2)])
async def test_only_the_part_is_read_again_to_which_something_was_added(
    engine: AsyncEngine, stored: list[Entry], by: tuple[Dimension, ...], parts: int
) -> None:
    """A year was read again for each request that was booked meanwhile; for groups by time all its rows were sorted."""
    reports, query = SqlReports(engine), replace(WHOLE, until_us=us(START + timedelta(days=30)), by=by)
    read: list[int] = []
    for number in (9_998, 9_999):
        intent = make_intent(number, accepted_at_us=us(START + timedelta(days=20)))
        await SqlLedger(engine).insert([make_entry(number, intent=intent)])
        read.append(sum("output_tokens" in one for one in await _statements(engine, reports, [query])))
        assert await reports.sums(query) == await SqlReports(engine, KeptSums(most_bytes=0)).sums(query)
    assert read == [parts, 1]


async def test_no_more_is_kept_than_there_is_room_for(engine: AsyncEngine, stored: list[Entry]) -> None:
    reports = SqlReports(engine, KeptSums(most_bytes=1))
    first = await _statements(engine, reports, [WHOLE])
    assert await _statements(engine, reports, [WHOLE]) == first


async def _statements(engine: AsyncEngine, reports: SqlReports, queries: Sequence[SumsQuery]) -> list[str]:
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_others: object) -> None:
        asked.append(statement)

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    await reports.sums_together(queries)
    event.remove(engine.sync_engine, "before_cursor_execute", note)
    return asked


def _money(one: Sums) -> tuple[int, ...]:
    return (one.requests, one.unpriced_requests, one.successful_requests, one.corrected_cost_pico_usd)


def _total(rows: Sequence[Sums]) -> tuple[int, int, int]:
    return sum(one.requests for one in rows), _cost(rows), sum(one.adjustment_pico_usd for one in rows)


def _cost(rows: Sequence[Sums]) -> int:
    return sum(one.cost_pico_usd for one in rows)


def _cost_of(entry: Entry) -> int:
    return entry.cost.total_pico_usd if entry.cost else 0
