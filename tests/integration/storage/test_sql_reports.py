"""Reports equal sums over the entries themselves, in any grouping, period and time zone, on both databases."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace as replaced
from sqlalchemy import delete, update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.instants import microseconds as us
from gateway.instants import moment_of
from gateway.ledger.entry import Cost, Entry, Status
from gateway.pricing.reprice import Booked
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.storage.sql.audit import SqlAuditLog
from gateway.storage.sql.entries import SqlEntries
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.storage.tables import daily, entries, hourly
from gateway.stores import Adjustment, AdjustmentKind, BatchCost, EntryOrder, EntryStore
from gateway.sums import Dimension, ReportStore, SumsQuery
from tests.unit.gateway.ledger.builders import make_entry, make_intent, make_local_entry, request_id

pytestmark = pytest.mark.integration
START = datetime(2026, 3, 26, tzinfo=UTC)  # daylight saving time begins on the 29th in Europe


def random_entries(count: int) -> list[Entry]:
    chance = random.Random(7)
    found: list[Entry] = []
    for number in range(count):
        intent = make_intent(
            number,
            accepted_at_us=us(START) + chance.randrange(6 * 86_400_000_000),
            team=chance.choice(("search", "ads", None)),
            key_id=chance.choice(("k1", "k2")),
            tags=chance.choice(((), ("batch",), ("batch", "eu"))),
        )
        make = chance.choice((make_entry, make_local_entry))
        known = chance.random() < 0.9
        cost = Cost(input_pico_usd=chance.randrange(10**10), output_pico_usd=chance.randrange(10**10), list_pico_usd=9)
        found.append(
            make(
                number,
                intent=intent,
                status=chance.choice((Status.completed, Status.completed, Status.cancelled)),
                cost=cost if known else None,
                cost_lower_pico_usd=cost.total_pico_usd if known else 0,
                cost_upper_pico_usd=cost.total_pico_usd if known else None,
                time_to_first_token_seconds=round(chance.lognormvariate(-1, 1), 6),
                total_seconds=round(chance.lognormvariate(1, 1), 6),
                web_searches=chance.choice((0, 0, 3)),
                file_searches=chance.choice((0, 1)),
                other_tool_calls=chance.choice((0, 2)),
            )
        )
    return found


@pytest.fixture
async def stored(engine: AsyncEngine) -> list[Entry]:
    found = random_entries(400)
    ledger = SqlLedger(engine)
    for start in range(0, len(found), 150):
        await ledger.insert(found[start : start + 150])
    return found


def group_of(entry: Entry, by: tuple[Dimension, ...], zone: str) -> list[tuple[str | None, ...]]:
    """As a reader of the documentation would compute it."""
    moment = moment_of(entry.intent.accepted_at_us)
    local = moment.astimezone(ZoneInfo(zone))
    values: dict[str, list[str | None]] = {
        "model": [entry.model],
        "team": [entry.intent.team],
        "key": [entry.intent.key_id],
        "status": [entry.status.value],
        "tag": list(entry.intent.tags) or [None],
        "hour": [moment.strftime("%Y-%m-%dT%H:00Z")],
        "day": [local.strftime("%Y-%m-%d")],
        "week": [f"{local.isocalendar().year}-W{local.isocalendar().week:02}"],
        "month": [local.strftime("%Y-%m")],
        "quarter": [f"{local.year}-Q{1 + (local.month - 1) // 3}"],
    }
    groups: list[tuple[str | None, ...]] = [()]
    for name in by:
        groups = [(*group, value) for group in groups for value in values[name]]
    return groups


PERIODS = [
    (START, START + timedelta(days=7)),
    (START + timedelta(hours=5, minutes=17), START + timedelta(days=3, hours=2, minutes=40, microseconds=1)),
    (START + timedelta(hours=5, minutes=17), START + timedelta(hours=5, minutes=43)),
]
GROUPINGS: list[tuple[Dimension, ...]] = [
    (),
    ("model",),
    ("team", "status"),
    ("tag",),
    ("day", "team"),
    ("week",),
    ("month",),
    ("quarter", "model"),
    ("hour",),
]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata"])
async def test_sums_equal_the_entries(engine: AsyncEngine, stored: list[Entry], zone: str) -> None:
    reports: ReportStore = SqlReports(engine)
    for since, until in PERIODS:
        inside = [entry for entry in stored if us(since) <= entry.intent.accepted_at_us < us(until)]
        for by in GROUPINGS:
            requests: Counter[tuple[str | None, ...]] = Counter()
            cost: Counter[tuple[str | None, ...]] = Counter()
            for entry in inside:
                for group in group_of(entry, by, zone):
                    requests[group] += 1
                    cost[group] += entry.cost.total_pico_usd if entry.cost else 0
            rows = await reports.sums(SumsQuery(us(since), us(until), by, time_zone=zone))
            assert {tuple(row.group.values()): row.requests for row in rows} == requests, (by, since)
            assert {tuple(row.group.values()): row.cost_pico_usd for row in rows} == cost, (by, since)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
async def test_several_questions_at_once_have_the_answers_of_each(
    engine: AsyncEngine, stored: list[Entry], zone: str
) -> None:
    reports = SqlReports(engine)
    for since, until in PERIODS:
        asked = [
            SumsQuery(us(since), us(until), by, {"is_simulated": "false"}, zone, with_latencies=by != ("hour",))
            for by in GROUPINGS
        ]
        assert await reports.sums_together(asked) == [await reports.sums(one) for one in asked]


async def test_sketches_of_a_long_period_are_joined_part_by_part(
    engine: AsyncEngine, stored: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = SqlReports(engine)
    for by in GROUPINGS:
        query = SumsQuery(us(START), us(START) + 10**12, by, with_latencies=True)
        whole = await reports.sums(query)
        with monkeypatch.context() as patch:
            patch.setattr("gateway.storage.sums.sum_rows.SKETCH_HOURS", 24)
            assert await reports.sums(query) == whole


async def test_every_column_of_the_total(engine: AsyncEngine, stored: list[Entry]) -> None:
    [total] = await SqlReports(engine).sums(SumsQuery(us(START), us(START) + 10**12, with_latencies=True))
    assert total.requests == 400
    assert total.successful_requests == sum(entry.status is Status.completed for entry in stored)
    assert total.aborted_requests == sum(entry.status is Status.cancelled for entry in stored)
    assert total.unpriced_requests == total.unbounded_requests == sum(entry.cost is None for entry in stored)
    assert total.output_tokens == sum(entry.output_tokens for entry in stored)
    for name in ("web_searches", "file_searches", "other_tool_calls"):
        assert getattr(total, name) == sum(getattr(entry, name) for entry in stored) > 0
    assert total.gpu_us == sum(round(entry.gpu_seconds * 1e6) for entry in stored)
    assert total.lower_pico_usd == sum(entry.cost_lower_pico_usd or 0 for entry in stored)
    assert total.upper_pico_usd == sum(entry.cost_upper_pico_usd or 0 for entry in stored)
    exact = sorted(entry.time_to_first_token_seconds or 0 for entry in stored)
    assert total.latencies is not None
    assert total.latencies.time_to_first_token_p50_seconds == pytest.approx(exact[199], rel=0.021)
    assert total.latencies.time_to_first_token_p95_seconds == pytest.approx(exact[379], rel=0.021)


async def test_filters_and_an_empty_period(engine: AsyncEngine, stored: list[Entry]) -> None:
    reports = SqlReports(engine)
    whole = us(START), us(START) + 10**12

    async def count(**filters: str | None) -> int:
        rows = await reports.sums(SumsQuery(*whole, filters=filters))  # pyright: ignore[reportArgumentType]
        return sum(row.requests for row in rows)

    assert await count(team="ads", model="mid-hosted") == sum(
        entry.intent.team == "ads" and entry.model == "mid-hosted" for entry in stored
    )
    assert await count(team=None) == sum(entry.intent.team is None for entry in stored)
    assert await count(tag="eu") == sum("eu" in entry.intent.tags for entry in stored)
    assert await count(is_simulated="true") == 0
    assert await reports.sums(SumsQuery(0, 10**9, ("model",))) == []
    with pytest.raises(ValueError, match="no time zone"):
        await reports.sums(SumsQuery(*whole, time_zone="Mars/Base"))


async def test_a_period_as_long_as_the_calendar_takes_as_long_as_what_is_booked_in_it(
    engine: AsyncEngine, stored: list[Entry]
) -> None:
    always = (us(datetime.min.replace(tzinfo=UTC)), us(datetime.max.replace(tzinfo=UTC)))
    here = (us(START - timedelta(days=2)), us(START + timedelta(days=9)))
    reports = SqlReports(engine)
    for zone in ("America/St_Johns", "Asia/Kolkata"):  # a day before the first one there is, and one after the last
        expected = await reports.sums(SumsQuery(*here, by=("day",), time_zone=zone))
        assert await reports.sums(SumsQuery(*always, by=("day",), time_zone=zone)) == expected
        assert sum(row.requests for row in expected) == len(stored)


async def test_money_beyond_64_bits_is_summed_exactly(engine: AsyncEngine) -> None:
    huge = Cost(output_pico_usd=10**17 - 1, list_pico_usd=10**17 - 1)
    stored = [
        make_entry(n, intent=make_intent(n, team=f"team {n % 40}"), cost=huge, cost_lower_pico_usd=5)
        for n in range(400)
    ]
    await SqlLedger(engine).insert(stored)
    [total] = await SqlReports(engine).sums(SumsQuery(0, 2**62))
    assert total.cost_pico_usd == 400 * (10**17 - 1) > 2**63


async def test_hourly_traffic_for_the_break_even_report(engine: AsyncEngine, stored: list[Entry]) -> None:
    reports = SqlReports(engine)
    bounds = await reports.first_and_last_us()
    assert bounds is not None
    traffic = await reports.hourly_traffic(*bounds)
    assert [(row.hour_start_us, row.model) for row in traffic] == sorted(
        (row.hour_start_us, row.model) for row in traffic
    )
    assert sum(row.requests for row in traffic) == 400
    assert sum(row.cost_pico_usd for row in traffic) == sum(e.cost.total_pico_usd for e in stored if e.cost)
    assert sum(row.gpu_seconds for row in traffic) == pytest.approx(sum(entry.gpu_seconds for entry in stored))
    assert sum(row.aborted_requests for row in traffic) == sum(entry.status is Status.cancelled for entry in stored)
    assert await SqlReports(engine).hourly_traffic(0, 3_600_000_000) == []


async def test_corrections_are_added_once_and_appear_in_the_sums(engine: AsyncEngine, stored: list[Entry]) -> None:
    unpriced = [entry.intent.request_id for entry in stored if entry.cost is None]
    batch = [Adjustment(number, "reprice", "prices-2", 10**9, "price became known") for number in unpriced]
    books = SqlAdjustments(engine)
    assert await books.book([*batch, Adjustment(request_id(9_999), "refund", "r", 1, "no such")], author="ada") == len(
        unpriced
    )
    assert await books.book(batch, author="ada") == 0
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


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "Australia/Lord_Howe"])
async def test_a_correction_is_on_the_day_of_its_request(engine: AsyncEngine, stored: list[Entry], zone: str) -> None:
    """Also where a day begins within a UTC hour, and where a period ends within one."""
    amounts = {entry.intent.request_id: 1000**number for number, entry in enumerate(stored[:6])}
    amounts |= {entry.intent.request_id: 7 * number for number, entry in enumerate(stored[6:])}
    batch = [Adjustment(number, "reprice", "prices-2", amount, "known") for number, amount in amounts.items()]
    assert await SqlAdjustments(engine).book(batch, author="ada") == len(stored)
    for since, until in PERIODS:
        expected: dict[tuple[str | None, ...], int] = {}
        for entry in stored:
            if us(since) <= entry.intent.accepted_at_us < us(until):
                for group in group_of(entry, ("day", "team"), zone):
                    expected[group] = expected.get(group, 0) + amounts[entry.intent.request_id]
        rows = await SqlReports(engine).sums(SumsQuery(us(since), us(until), ("day", "team"), time_zone=zone))
        assert {tuple(row.group.values()): row.adjustment_pico_usd for row in rows} == expected


async def test_requests_that_got_their_first_price_later_are_counted_once(
    engine: AsyncEngine, stored: list[Entry]
) -> None:
    """Whatever else was booked of them and of others; in whole hours and in cut ones."""
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


async def test_a_closed_month_is_what_it_was_however_much_is_corrected_afterwards(
    engine: AsyncEngine, stored: list[Entry]
) -> None:
    """In whole hours and in cut ones, by groups of each kind, filtered and not."""
    numbers, closed_us = [entry.intent.request_id for entry in stored], 7_000
    asked: list[tuple[tuple[Dimension, ...], dict[Dimension, str | None]]]
    asked = [(("day", "team"), {}), (("tag",), {"team": "search"}), ((), {})]
    queries = [
        SumsQuery(us(since), us(until), by, filters, time_zone="Asia/Kolkata")
        for since, until in PERIODS
        for by, filters in asked
    ]

    async def book(kind: AdjustmentKind, reference: str, *, at_us: int) -> None:
        batch = [Adjustment(one, kind, reference, 5 + place, "whatever") for place, one in enumerate(numbers)]
        assert await SqlAdjustments(engine, now_us=lambda: at_us).book(batch, author="ada") == len(numbers)

    await book("refund", "before", at_us=closed_us - 1)
    as_closed = [await SqlReports(engine).sums(query) for query in queries]
    for reference in ("v1", "v2"):
        await book("reprice", reference, at_us=closed_us)
    moved = [await SqlReports(engine).sums(query) for query in queries]
    assert [each != then for each, then in zip(moved, as_closed, strict=True)] == [bool(each) for each in moved]
    as_of = [await SqlReports(engine).sums(replace(query, as_of_us=closed_us)) for query in queries]
    assert as_of == as_closed
    assert [await SqlReports(engine).sums(replace(query, as_of_us=closed_us + 1)) for query in queries] == moved


async def test_corrections_of_one_request_in_one_batch_all_count(engine: AsyncEngine, stored: list[Entry]) -> None:
    """The same one twice counts once, as the first of them; a request gets its first price once."""
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
    traffic = await SqlReports(engine).hourly_traffic(0, 2**53, of_all_kinds=True)
    assert sum(hour.unpriced_requests for hour in traffic) == sum(entry.cost is None for entry in stored[9:])
    assert sum(hour.cost_pico_usd for hour in traffic) == total.corrected_cost_pico_usd


async def test_two_who_correct_by_other_prices_at_once_correct_once(engine: AsyncEngine, stored: list[Entry]) -> None:
    """Both found the books as they were: what the second was to add to them would count the difference twice."""
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


async def test_when_single_requests_are_gone_a_cut_hour_counts_where_it_begins(engine: AsyncEngine) -> None:
    ledger = SqlLedger(engine)
    at = us(datetime(2026, 1, 10, 12, 30, tzinfo=UTC))
    await ledger.insert([make_entry(1, intent=make_intent(1, accepted_at_us=at))])
    await ledger.partitions.drop_before(us(datetime(2026, 2, 1, tzinfo=UTC)))
    reports = SqlReports(engine)
    hour = us(datetime(2026, 1, 10, 12, tzinfo=UTC))
    assert [row.requests for row in await reports.sums(SumsQuery(hour, hour + 60_000_000))] == [1]
    assert await reports.sums(SumsQuery(hour + 60_000_000, hour + 3_600_000_000)) == []


@dataclass(frozen=True)
class Wanted:
    since: datetime | None = None
    until: datetime | None = None
    key_id: str | None = None
    team: str | None = None
    project: str | None = None
    model: str | None = None
    backend: str | None = None
    rule: str | None = None
    tag: str | None = None
    batch_id: str | None = None
    status: Status | None = None
    order: EntryOrder = "newest"
    before: str | None = None
    limit: int = 50


async def test_entries_are_found_by_filters_in_pages_newest_first(engine: AsyncEngine, stored: list[Entry]) -> None:
    store: EntryStore = SqlEntries(engine)
    rounded = {entry.intent.request_id for entry in stored if entry.intent.team == "ads" and "eu" in entry.intent.tags}
    found: list[Entry] = []
    before: str | None = None
    while page := await store.find(Wanted(team="ads", tag="eu", before=before, limit=7)):
        found += page
        before = page[-1].intent.request_id
    assert {entry.intent.request_id for entry in found} == rounded
    assert len(found) == len(rounded)
    times = [entry.intent.accepted_at_us for entry in found]
    assert times == sorted(times, reverse=True)
    until = START + timedelta(days=1)
    day = await store.find(Wanted(until=until, status=Status.cancelled, limit=500))
    assert len(day) == sum(e.intent.accepted_at_us < us(until) and e.status is Status.cancelled for e in stored)
    assert await store.find(Wanted(before=request_id(10**9))) == []
    assert await store.find(Wanted(before="zz")) == []
    assert await store.find(Wanted(tag="e")) == []


FIGURES: dict[EntryOrder, Callable[[Entry], float]] = {
    "cost": lambda one: one.cost.total_pico_usd if one.cost is not None else 0,
    "total_time": lambda one: one.total_seconds,
    "first_token": lambda one: -1.0 if one.time_to_first_token_seconds is None else one.time_to_first_token_seconds,
}


@pytest.mark.parametrize("order", FIGURES)
async def test_the_largest_come_first_and_those_without_the_figure_last(
    engine: AsyncEngine, stored: list[Entry], order: EntryOrder
) -> None:
    figure = FIGURES[order]
    without = make_entry(999, intent=make_intent(999, team="ads"), cost=None, time_to_first_token_seconds=None)
    await SqlLedger(engine).insert([without])
    found = await SqlEntries(engine).find(Wanted(team="ads", order=order, limit=500))
    figures = [figure(one) for one in found]
    assert len(set(figures)) > 1
    assert figures == sorted((figure(one) for one in [*stored, without] if one.intent.team == "ads"), reverse=True)
    few = await SqlEntries(engine).find(Wanted(team="ads", order=order, limit=3))
    assert [figure(one) for one in few] == figures[:3]


def dearest_first(entries: list[Entry], corrections: Mapping[str, int]) -> list[str]:
    """By what each costs with its corrections; of equals, and of those that cost nothing, the newest first."""

    def key(entry: Entry) -> tuple[int, int, str]:
        number = entry.intent.request_id
        cost = (entry.cost.total_pico_usd if entry.cost is not None else 0) + corrections.get(number, 0)
        return max(cost, 0), entry.intent.accepted_at_us, number

    return [entry.intent.request_id for entry in sorted(entries, key=key, reverse=True)]


@pytest.mark.parametrize("team", ["ads", None])
@pytest.mark.parametrize("limit", [1, 10, 500])
async def test_the_dearest_are_those_with_their_corrections(
    engine: AsyncEngine, stored: list[Entry], team: str | None, limit: int
) -> None:
    """One that a correction made cheaper gives way to others; one that got its first price later is among them."""
    asked = [entry for entry in stored if team in (None, entry.intent.team)]
    [first, second, *_] = dearest_first(asked, {})
    unpriced = [entry.intent.request_id for entry in asked if entry.cost is None]
    batch = [
        Adjustment(first, "refund", "credit-7", -(10**12), "outage"),
        Adjustment(second, "reprice", "v2", 1, "known"),
        Adjustment(second, "reprice", "v3", 10**12, "known"),
        *(Adjustment(number, "reprice", "v2", 10**9 * (at + 1), "known") for at, number in enumerate(unpriced)),
    ]
    assert await SqlAdjustments(engine).book(batch, author="ada") == len(batch)
    corrections: dict[str, int] = {}
    for one in batch:
        corrections[one.request_id] = corrections.get(one.request_id, 0) + one.amount_pico_usd
    found = await SqlEntries(engine).find(Wanted(team=team, order="cost", limit=limit))
    assert [one.intent.request_id for one in found] == dearest_first(asked, corrections)[:limit]


async def test_the_dearest_are_found_though_a_replica_of_an_older_version_wrote_them(
    engine: AsyncEngine, stored: list[Entry]
) -> None:
    """Which knows nothing of the largest figures of an hour: those stay as they were, or nothing."""
    async with engine.begin() as connection:
        for table in (hourly, daily):
            await connection.execute(update(table).values(largest_pico_usd=0, ranked=0))
    found = await SqlEntries(engine).find(Wanted(order="cost", limit=20))
    assert [one.intent.request_id for one in found] == dearest_first(stored, {})[:20]


async def test_the_dearest_of_a_period_are_of_it_alone(engine: AsyncEngine, stored: list[Entry]) -> None:
    since, until = START + timedelta(hours=20, minutes=30), START + timedelta(days=2, minutes=10)
    inside = [entry for entry in stored if us(since) <= entry.intent.accepted_at_us < us(until)]
    found = await SqlEntries(engine).find(Wanted(since=since, until=until, order="cost", limit=500))
    assert [one.intent.request_id for one in found] == dearest_first(inside, {})


async def test_hours_whose_requests_are_forgotten_are_not_looked_into(engine: AsyncEngine, stored: list[Entry]) -> None:
    async with engine.begin() as connection:
        await connection.execute(delete(entries))
    assert await SqlEntries(engine).find(Wanted(order="cost")) == []


async def test_what_a_batch_cost_is_the_sum_of_its_requests_with_their_corrections(engine: AsyncEngine) -> None:
    """Those without a price are counted and in no sum, until a correction says one; another team's are not a lead's."""

    def line(number: int, batch_id: str | None = "batch_a", team: str = "ads", **given: Any) -> Entry:
        return make_entry(number, intent=make_intent(number, team=team, batch_id=batch_id), **given)

    lines = [line(1), line(2), line(3, cost=None), line(4, cost=None), line(5, "batch_b"), line(6, None)]
    other = line(7, team="search")
    await SqlLedger(engine).insert([*lines, other])
    first, second, third, *_ = lines
    booked = [
        Adjustment(second.intent.request_id, "refund", "credit-7", -5, "outage"),
        Adjustment(third.intent.request_id, "reprice", "v2", 10**9, "known"),
    ]
    assert await SqlAdjustments(engine).book(booked, author="ada") == len(booked)
    store = SqlEntries(engine)
    assert first.cost is not None
    ads = BatchCost(4, 1, 4 * first.input_tokens, 4 * first.output_tokens, 2 * first.cost.total_pico_usd - 5 + 10**9)
    assert await store.batch_cost("batch_a", team="ads") == ads
    assert (await store.batch_cost("batch_a")).cost_pico_usd == ads.cost_pico_usd + first.cost.total_pico_usd
    assert await store.batch_cost("batch_c") == BatchCost(0, 0, 0, 0, 0)


@pytest.mark.parametrize("order", [*FIGURES, "newest"])
async def test_the_requests_of_a_batch_are_found_in_every_order_and_come_back_with_its_name(
    engine: AsyncEngine, stored: list[Entry], order: EntryOrder
) -> None:
    few = [
        replaced(one, intent=replaced(one.intent, request_id=request_id(5000 + n), batch_id="batch_a"))
        for n, one in enumerate(stored[::7])
    ]
    await SqlLedger(engine).insert(few)
    store = SqlEntries(engine)
    found = await store.find(Wanted(batch_id="batch_a", order=order, limit=500))
    assert {one.intent.request_id for one in found} == {one.intent.request_id for one in few}
    assert {one.intent.batch_id for one in found} == {"batch_a"}
    times = [(one.intent.accepted_at_us, one.intent.request_id) for one in found]
    if order == "newest":
        assert times == sorted(times, reverse=True)
        rest = await store.find(Wanted(batch_id="batch_a", before=times[4][1], limit=500))
        assert [one.intent.request_id for one in rest] == [number for _, number in times[5:]]
    else:
        figures = [max(FIGURES[order](one), 0) for one in found]
        assert figures == sorted(figures, reverse=True)
    mine = await store.find(Wanted(batch_id="batch_a", team="ads", order=order, limit=500))
    assert {one.intent.team for one in mine} == {"ads"}
    assert await store.find(Wanted(batch_id="batch_b", order=order)) == []
