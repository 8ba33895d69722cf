"""Later corrections are added once, in their request's place, on both databases."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.clock import now_us
from gateway.economics.rent import RentHistory
from gateway.errors import StateError
from gateway.instants import DAY_US, HOUR_US, moment_of
from gateway.instants import microseconds as us
from gateway.ledger.entry import Entry
from gateway.money import parse_usd
from gateway.pricing.reprice import REASONS, Booked
from gateway.reports.books import Books, BooksOf
from gateway.reports.daily_history import read_daily_costs
from gateway.reports.views import CostQuery, PeriodQuery
from gateway.storage.database import writing
from gateway.storage.retention import apply_retention
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.storage.sql.audit import SqlAuditLog
from gateway.storage.sql.entries import SqlEntries
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.storage.sums.corrections import Totals
from gateway.storage.sums.filtered_rows import RowsOf
from gateway.storage.sums.kept_sums import KeptSums, Key
from gateway.storage.sums.spans import Span
from gateway.storage.tables.books import adjustments
from gateway.stores import Adjustment, AdjustmentKind
from gateway.sums import Dimension, SumsQuery
from tests.builders import make_snapshot
from tests.integration.storage.booked import PERIODS, START, group_of
from tests.unit.gateway.ledger.builders import make_entry, make_intent, request_id

pytestmark = pytest.mark.integration


async def test_corrections_are_added_once_and_appear_in_the_sums(engine: AsyncEngine, stored: list[Entry]) -> None:
    unpriced = [entry.intent.request_id for entry in stored if entry.cost is None]
    batch = [Adjustment(number, "reprice", "prices-2", 10**9, "price became known") for number in unpriced]
    books = SqlAdjustments(engine)
    before = await books.newest()
    assert await books.book([*batch, Adjustment(request_id(9_999), "refund", "r", 1, "no such")], author="ada") == len(
        unpriced
    )
    corrected = await books.newest()
    assert await books.book(batch, author="ada") == 0
    assert before < corrected == await books.newest()
    assert await books.book([Adjustment(unpriced[0], "refund", "credit-7", -5, "outage")], author="ada") == 1
    assert (await books.booked(unpriced))[unpriced[0]] == Booked(10**9, 1)
    priced = next(entry.intent.request_id for entry in stored if entry.cost is not None)
    found = await SqlEntries(engine).corrections([priced, unpriced[0], unpriced[1]])
    assert {number: [one.booked for one in each] for number, each in found.items()} == {
        unpriced[0]: [batch[0], Adjustment(unpriced[0], "refund", "credit-7", -5, "outage")],
        unpriced[1]: [batch[1]],
    }
    for since, until in PERIODS[:1]:
        [total] = await SqlReports(engine).sums(SumsQuery(us(since), us(until)))
        assert total.adjustment_pico_usd == len(unpriced) * 10**9 - 5
        assert total.corrected_cost_pico_usd == total.cost_pico_usd + total.adjustment_pico_usd
    days = await SqlReports(engine).sums(SumsQuery(us(START), us(START) + 10**12, ("day",), time_zone="Asia/Kolkata"))
    assert sum(row.adjustment_pico_usd for row in days) == len(unpriced) * 10**9 - 5
    assert (await SqlAuditLog(engine).verify()).is_intact


async def test_a_correction_is_on_the_day_of_its_request(engine: AsyncEngine, stored: list[Entry]) -> None:
    """Also if a day begins within a UTC hour, or a period ends within one."""
    amounts = {entry.intent.request_id: 1000**number for number, entry in enumerate(stored[:6])}
    amounts |= {entry.intent.request_id: 7 * number for number, entry in enumerate(stored[6:])}
    batch = [Adjustment(number, "reprice", "prices-2", amount, "known") for number, amount in amounts.items()]
    assert await SqlAdjustments(engine).book(batch, author="ada") == len(stored)
    for zone, (since, until) in product(("Asia/Kolkata", "Australia/Lord_Howe"), PERIODS):
        expected: dict[tuple[str | None, ...], int] = {}
        for entry in stored:
            if us(since) <= entry.intent.accepted_at_us < us(until):
                for group in group_of(entry, ("day", "team"), zone):
                    expected[group] = expected.get(group, 0) + amounts[entry.intent.request_id]
        rows = await SqlReports(engine).sums(SumsQuery(us(since), us(until), ("day", "team"), time_zone=zone))
        assert {tuple(row.group.values()): row.adjustment_pico_usd for row in rows} == expected, zone


async def test_requests_that_got_their_first_price_later_are_counted_once(
    engine: AsyncEngine, stored: list[Entry]
) -> None:
    """Whatever else was booked for them and for others, in whole and in partial hours."""
    numbers = [entry.intent.request_id for entry in stored]
    booked: list[tuple[AdjustmentKind, str]] = [("refund", "a"), ("reprice", "v1#0"), ("reprice", "v2#1")]
    for kind, reference in booked:
        batch = [Adjustment(number, kind, reference, 5, "whatever") for number in numbers]
        assert await SqlAdjustments(engine).book(batch, author="ada") == len(stored)
    for since, until in PERIODS:
        rows = await SqlReports(engine).sums(SumsQuery(us(since), us(until), ("day",), time_zone="Asia/Kolkata"))
        assert rows or (since, until) != PERIODS[0]
        assert all(row.adjusted_requests == 3 * row.requests for row in rows)
        assert [row.priced_later_requests for row in rows] == [row.unpriced_requests for row in rows]


async def test_a_closed_month_is_what_it_was_when_its_requests_are_deleted(engine: AsyncEngine) -> None:
    """Requests that were priced after the closing were no longer without a price as of the closing."""
    await SqlLedger(engine).insert([make_entry(1), make_entry(2, cost=None, cost_lower_pico_usd=0)])
    at_us, closed_us = make_intent(1).accepted_at_us, now_us()
    priced = Adjustment(request_id(2), "reprice", "v2#0", 5, REASONS["unpriced"], after=0)
    assert await SqlAdjustments(engine, now_us=lambda: closed_us + 1).book([priced], author="ada") == 1
    queries = [SumsQuery(0, at_us + DAY_US, as_of_us=as_of_us) for as_of_us in (closed_us, None)]
    before = [await SqlReports(engine).sums(query) for query in queries]
    assert [total.still_unpriced_requests for [total] in before] == [1, 0]
    await apply_retention(engine, requests_days=30, bodies_days=30, now_us=at_us + 100 * DAY_US)
    assert [await SqlReports(engine).sums(query) for query in queries] == before


async def test_a_closed_month_is_what_it_was_however_much_is_corrected_afterwards(
    engine: AsyncEngine, stored: list[Entry]
) -> None:
    """In whole and in partial hours, with groups of each kind, filtered or not."""
    numbers = [entry.intent.request_id for entry in stored]
    asked: list[tuple[tuple[Dimension, ...], dict[Dimension, str | None]]]
    asked = [(("day", "team"), {}), (("tag",), {"team": "search"}), ((), {})]
    queries = [
        SumsQuery(us(since), us(until), by, filters, time_zone="Asia/Kolkata")
        for since, until in PERIODS
        for by, filters in asked
    ]

    async def book(kind: AdjustmentKind, reference: str) -> None:
        batch = [Adjustment(one, kind, reference, 5 + place, "whatever") for place, one in enumerate(numbers)]
        assert await SqlAdjustments(engine).book(batch, author="ada") == len(numbers)

    await book("refund", "before")
    closed_us = 1 + await newest_us(engine)
    as_closed = [await SqlReports(engine).sums(query) for query in queries]
    for reference in ("v1", "v2"):
        await book("reprice", reference)
    moved = [await SqlReports(engine).sums(query) for query in queries]
    assert [each != then for each, then in zip(moved, as_closed, strict=True)] == [bool(each) for each in moved]
    as_of = [await SqlReports(engine).sums(replace(query, as_of_us=closed_us)) for query in queries]
    assert as_of == as_closed
    today_us = 1 + await newest_us(engine)
    assert [await SqlReports(engine).sums(replace(query, as_of_us=today_us)) for query in queries] == moved


class Interrupted(KeptSums):
    """Lets something happen after a report's first query."""

    def __init__(self, act: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._act: Callable[[], Awaitable[object]] | None = act

    async def rows(
        self,
        connection: AsyncConnection,
        span: Span,
        asked: Key,
        read: Callable[[], AsyncIterator[Totals]],
        of: RowsOf = Span.conditions,
    ) -> AsyncIterator[Totals]:
        async for row in super().rows(connection, span, asked, read, of):
            yield row
        if self._act is not None:
            act, self._act = self._act, None
            await act()


async def test_a_closed_month_is_what_it_was_in_the_moment_of_a_correction_too(
    engine: AsyncEngine, stored: list[Entry]
) -> None:
    """The sums, and the corrections to subtract from them, are two queries."""
    credit = [Adjustment(stored[0].intent.request_id, "refund", "credit-7", -5, "outage")]
    query = SumsQuery(us(START), us(START) + 8 * DAY_US, as_of_us=now_us())
    as_closed = await SqlReports(engine).sums(query)
    meanwhile = Interrupted(lambda: SqlAdjustments(engine).book(credit, author="ada"))
    assert await SqlReports(engine, meanwhile).sums(query) == as_closed
    assert await SqlReports(engine).sums(replace(query, as_of_us=None)) != as_closed


class Held(SqlAdjustments):
    """Its correction has a date, and is committed once it may go."""

    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__(engine)
        self.dated: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.may_go = asyncio.Event()

    async def _today_us(self, connection: AsyncConnection) -> int:
        at_us = await super()._today_us(connection)
        self.dated.set_result(at_us)
        await self.may_go.wait()
        return at_us


async def test_a_month_is_closed_once_all_corrections_until_then_are_booked(engine: AsyncEngine) -> None:
    """Some were dated before it was closed, and committed after it had been read."""

    async def no_rents() -> list[RentHistory]:
        return []

    entry, snapshot = make_entry(1), make_snapshot()
    await SqlLedger(engine).insert([entry])
    books, held = Books(SqlReports(engine), BooksOf(lambda: snapshot, no_rents, now_us)), Held(engine)
    credit = [Adjustment(entry.intent.request_id, "refund", "credit-7", -5, "outage")]
    booking = asyncio.create_task(held.book(credit, author="ada"))
    as_of = moment_of(1 + await held.dated)
    asked = CostQuery(since=moment_of(entry.intent.accepted_at_us), until=as_of, as_of=as_of)
    closing = asyncio.create_task(books.costs(asked))
    await asyncio.wait({closing}, timeout=0.1)
    held.may_go.set()
    assert await booking == 1
    assert (await closing).total == (await books.costs(asked)).total


async def test_an_overview_and_its_chart_are_of_one_moment(engine: AsyncEngine) -> None:
    """They are two readings: what was booked in between was in the chart and not in the total."""

    async def no_rents() -> list[RentHistory]:
        return []

    entry, snapshot = make_entry(1), make_snapshot()
    await SqlLedger(engine).insert([entry])
    credit = [Adjustment(entry.intent.request_id, "refund", "credit-7", -5, "outage")]
    meanwhile = Interrupted(lambda: SqlAdjustments(engine).book(credit, author="ada"))
    books = Books(SqlReports(engine, meanwhile), BooksOf(lambda: snapshot, no_rents, now_us))
    begin = moment_of(entry.intent.accepted_at_us)
    asked = PeriodQuery(since=begin - timedelta(days=9), until=begin + timedelta(days=9))
    for adjustment in ("0", "-0.000000000005"):
        seen = await books.overview(asked)
        assert parse_usd(seen.total.corrections_usd) == parse_usd(adjustment)
        assert sum(parse_usd(point.cost_usd) for point in seen.spend) == parse_usd(seen.total.cost_usd)


async def newest_us(engine: AsyncEngine) -> int:
    async with engine.connect() as connection:
        return (await connection.execute(select(func.max(adjustments.c.at_us)))).scalar_one()


async def test_no_correction_is_dated_back_by_a_clock_that_the_books_show_to_be_behind(engine: AsyncEngine) -> None:
    """It would change a closed month. It is booked if the user states that this clock is right and another was
    ahead."""
    await SqlLedger(engine).insert([make_entry(intent=make_intent(1, accepted_at_us=now_us() + 2 * HOUR_US))])
    credit = [Adjustment(request_id(1), "refund", "credit-7", -5, "outage")]
    with pytest.raises(StateError, match=r"and the books go on to .* add --clock-is-right"):
        await SqlAdjustments(engine).book(credit, author="ada")
    assert await SqlAdjustments(engine, trusts_clock=True).book(credit, author="ada") == 1


async def test_a_correction_that_a_fast_clock_dated_ahead_counts_at_once_and_closes_months_from_its_date_on(
    engine: AsyncEngine, stored: list[Entry]
) -> None:
    """Reports and budgets show it at once, wherever their period ends; a closed month has it once, from its date on."""
    reports, query = SqlReports(engine), SumsQuery(us(START), us(START) + 6 * DAY_US, filters={"team": "ads"})

    async def spent() -> int:
        read = await read_daily_costs(reports, query.filters, us(START) + 2 * DAY_US, 90, of_budget=True)
        return read.today_pico_usd + sum(day.cost_pico_usd for day in read.month)

    async def corrected(as_of_us: int | None, until_us: int) -> int:
        rows = await reports.sums(replace(query, as_of_us=as_of_us, until_us=until_us))
        return sum(row.adjustment_pico_usd for row in rows)

    before = await spent()
    ads = max((one for one in stored if one.intent.team == "ads"), key=lambda one: one.intent.accepted_at_us)
    credit = Adjustment(ads.intent.request_id, "refund", "credit-7", -5, "outage")
    assert await SqlAdjustments(engine).book([credit], author="ada") == 1
    ahead_us = now_us() + 40 * DAY_US
    async with writing(engine) as connection:
        await connection.execute(adjustments.update().values(at_us=ahead_us))
    for until_us in (query.until_us, ads.intent.accepted_at_us + 1):
        moments = (None, now_us(), ahead_us, ahead_us + 1)
        assert [await corrected(moment, until_us) for moment in moments] == [-5, 0, 0, -5]
    assert await spent() == before - 5
    again = replace(credit, reference="credit-8")
    with pytest.raises(StateError, match=r"and the books go on to .* add --clock-is-right"):
        await SqlAdjustments(engine).book([again], author="ada")
    assert await SqlAdjustments(engine, trusts_clock=True).book([credit, again], author="ada") == 1
    assert await newest_us(engine) == ahead_us
    assert await SqlAdjustments(engine).book([replace(credit, reference="credit-9")], author="ada") == 1


async def test_corrections_of_one_request_in_one_batch_all_count(engine: AsyncEngine, stored: list[Entry]) -> None:
    """The same one twice counts once, with the first amount; a request gets its first price once."""
    numbers = [entry.intent.request_id for entry in stored[:9]]
    batch = [Adjustment(number, "reprice", "v1", 5, "known") for number in numbers]
    batch += [Adjustment(number, "reprice", "v2", 70, "corrected") for number in numbers]
    batch += [Adjustment(number, "refund", "v1", 900, "outage") for number in numbers]
    batch += [Adjustment(number, "refund", "v1", 8000, "again") for number in numbers]
    books = SqlAdjustments(engine)
    assert await books.book(batch, author="ada") == 27
    assert await books.book(batch, author="ada") == 0
    [total] = await SqlReports(engine).sums(SumsQuery(0, 2**62))
    assert (total.adjustment_pico_usd, total.adjusted_requests) == (9 * 975, 27)
    assert total.priced_later_requests == sum(entry.cost is None for entry in stored[:9]) > 0
    traffic = await SqlReports(engine).hourly_traffic(0, 2**53)
    assert sum(hour.unpriced_requests for hour in traffic) == sum(entry.cost is None for entry in stored[9:])
    assert sum(hour.cost_pico_usd for hour in traffic) == total.corrected_cost_pico_usd


async def test_two_who_correct_by_other_prices_at_once_correct_once(engine: AsyncEngine, stored: list[Entry]) -> None:
    """Both read the same books, so the second one's correction would count the difference twice."""
    numbers = [entry.intent.request_id for entry in stored]

    def by(version: str, amount: int, after: int) -> list[Adjustment]:
        return [Adjustment(one, "reprice", f"{version}#{after}", amount, "known", after=after) for one in numbers]

    async def book(batch: list[Adjustment]) -> int:
        return await SqlAdjustments(engine).book(batch, author="ada")

    assert sorted(await asyncio.gather(book(by("v1", 5, 0)), book(by("v2", 5, 0)))) == [0, len(numbers)]
    assert await book(by("v3", 7, 0)) == 0
    assert await book(by("v3", 2, 1)) == len(numbers), "what is found afterwards is booked"
    [total] = await SqlReports(engine).sums(SumsQuery(0, 2**62))
    assert (total.adjustment_pico_usd, total.adjusted_requests) == (7 * len(numbers), 2 * len(numbers))
