"""Reports equal sums over the entries themselves, for any grouping, period and time zone, on both databases."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from msgspec.structs import replace as replaced
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.instants import HOUR_US
from gateway.instants import microseconds as us
from gateway.ledger.entry import Cost, Entry, Status
from gateway.limits.counters import budget_account
from gateway.limits.values import window_id
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.storage.sums.end_users import EndUserDays
from gateway.stores import Adjustment
from gateway.sums import Dimension, ReportStore, Sums, SumsQuery
from tests.integration.storage.booked import BY_END_USER, GROUPINGS, PERIODS, START, TIMED, group_of, random_entry
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = pytest.mark.integration
ANY = "any"
PLANNED_FOR_ANY = 6
"""From this execution on, PostgreSQL may plan a statement for any parameters."""


async def test_sums_equal_the_entries(engine: AsyncEngine, stored: list[Entry]) -> None:
    """In other time zones only groups of a time are others."""
    reports: ReportStore = SqlReports(engine)
    for zone, (since, until) in product(("UTC", "Europe/Berlin", "Asia/Kolkata"), PERIODS):
        inside = [entry for entry in stored if us(since) <= entry.intent.accepted_at_us < us(until)]
        of_end_users = BY_END_USER if (zone, since) == ("Asia/Kolkata", PERIODS[1][0]) else []
        for by in (*(GROUPINGS if zone == "UTC" else TIMED), *of_end_users):
            requests: Counter[tuple[str | None, ...]] = Counter()
            cost: Counter[tuple[str | None, ...]] = Counter()
            for entry in inside:
                for group in group_of(entry, by, zone):
                    requests[group] += 1
                    cost[group] += entry.cost.total_pico_usd if entry.cost else 0
            rows = await reports.sums(SumsQuery(us(since), us(until), by, time_zone=zone))
            assert {tuple(row.group.values()): row.requests for row in rows} == requests, (by, since, zone)
            assert {tuple(row.group.values()): row.cost_pico_usd for row in rows} == cost, (by, since, zone)


@pytest.mark.usefixtures("stored")
async def test_several_questions_at_once_have_the_answers_of_each(engine: AsyncEngine) -> None:
    reports = SqlReports(engine)
    for zone, (since, until) in zip(("UTC", "Asia/Kolkata", "Asia/Kolkata"), PERIODS, strict=True):
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


async def test_sums_by_end_user_are_those_by_team_where_each_team_is_one_end_user(engine: AsyncEngine) -> None:
    """With corrections, costs on other bills, and hours cut by the period's ends."""
    chance = random.Random(3)
    booked = [random_entry(chance, number) for number in range(60)]
    booked = [replaced(one, intent=replaced(one.intent, end_user=one.intent.team)) for one in booked]
    await SqlLedger(engine).insert([*booked, make_entry(60, intent=make_intent(60, accepted_at_us=1, team=None))])
    amounts = [Adjustment(one.intent.request_id, "reprice", "p", 3**n, "") for n, one in enumerate(booked[:30])]
    await SqlAdjustments(engine).book(amounts, author="ada")
    at = sorted(one.intent.accepted_at_us for one in booked)
    reports = SqlReports(engine)
    asked: list[tuple[tuple[Dimension, ...], tuple[int, int], str | None, int | None]] = [
        (("team", "day"), (at[9], 2**62), ANY, None),
        (("provider", "team"), (at[9], at[50]), ANY, 1),
        (("team",), (0, at[50]), "red", None),
        (("month", "status"), (at[9], 2**62), None, None),
        (("team",), (0, 2**62), "nobody", None),
    ]
    for by, period, who, as_of_us in asked:
        found: list[list[tuple[tuple[str | None, ...], Sums]]] = []
        for whose in ("team", "end_user"):
            named: tuple[Dimension, ...] = tuple(whose if name == "team" else name for name in by)
            filters: dict[Dimension, str | None] = {} if who == ANY else {whose: who}
            rows = await reports.sums(SumsQuery(*period, named, filters, "Asia/Kolkata", as_of_us))
            found.append([(tuple(one.group.values()), replaced(one, group={})) for one in rows])
        assert found[0] == found[1], by
        assert bool(found[0]) == (who != "nobody")
    huge = Cost(output_pico_usd=10**17 - 1, list_pico_usd=10**17 - 1)
    intents = [make_intent(n, team=f"team {n % 40}", end_user="vast") for n in range(100, 200)]
    await SqlLedger(engine).insert([make_entry(n, intent=one, cost=huge) for n, one in enumerate(intents, 100)])
    [vast] = await reports.sums(SumsQuery(0, 2**62, ("end_user",), {"end_user": "vast"}))
    assert vast.cost_pico_usd == 100 * (10**17 - 1) > 2**63
    account = budget_account(
        f"{intents[0].key_id}:vast", window_id("month", intents[0].accepted_at_us), scope="end_user"
    )
    assert await EndUserDays(engine)([account]) == {account: 9 * 10**18}, "the largest budget there may be"


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


async def test_a_tag_is_only_what_it_is_called(engine: AsyncEngine) -> None:
    """Of capitals, quotes and what LIKE takes for a pattern; in whole hours and in a cut one."""
    tags = ("prod", "Prod", "a_b", "axb", "100%", 'x"y', "y", "x\\", "\u00e9", "none")
    intents = [make_intent(n, tags=(tag, "all")) for n, tag in enumerate(tags, 1)]
    await SqlLedger(engine).insert([make_entry(n, intent=one) for n, one in enumerate(intents, 1)])
    hour = intents[0].accepted_at_us // HOUR_US * HOUR_US
    for until_us, tag in product((hour + HOUR_US, hour + HOUR_US - 1), (*tags, "PROD", ",", "%", "al")):
        rows = await SqlReports(engine).sums(SumsQuery(hour, until_us, ("day",), {"tag": tag}))
        assert sum(row.requests for row in rows) == (tag in tags), tag


async def test_a_period_as_long_as_the_calendar_takes_as_long_as_what_is_booked_in_it(
    engine: AsyncEngine, stored: list[Entry]
) -> None:
    always = (us(datetime.min.replace(tzinfo=UTC)), us(datetime.max.replace(tzinfo=UTC)))
    here = (us(START - timedelta(days=2)), us(START + timedelta(days=9)))
    reports = SqlReports(engine)
    for zone in ("America/St_Johns", "Asia/Kolkata"):  # including a day before the first entry and one after the last
        expected = await reports.sums(SumsQuery(*here, by=("day",), time_zone=zone))
        assert await reports.sums(SumsQuery(*always, by=("day",), time_zone=zone)) == expected
        assert sum(row.requests for row in expected) == len(stored)


async def test_books_that_a_clock_without_a_date_wrote_to_are_read_no_day_of_the_half_century_between(
    engine: AsyncEngine, stored: list[Entry]
) -> None:
    """A report over the whole time used to query every day since 1970, which took minutes."""
    await SqlLedger(engine).insert([make_entry(10_001, intent=make_intent(10_001, accepted_at_us=30_000_000))])
    asked: list[str] = []
    event.listen(engine.sync_engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    for zone in ("UTC", "Asia/Kolkata"):  # where midnight cuts an hour of every day
        query = SumsQuery(0, us(START) + 10**12, ("day",), {}, zone, with_latencies=True)
        found = await SqlReports(engine).sums(query)
        assert sum(row.requests for row in found) == len(stored) + 1
    assert len(asked) < 150


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
    at_us = stored[0].intent.accepted_at_us
    await SqlLedger(engine).insert([make_entry(intent=make_intent(9_000, accepted_at_us=at_us))])
    again = await reports.hourly_traffic(*bounds)
    assert sum(row.requests for row in again) == 401, "what is kept of a time is valid until something is added to it"
    for _ in range(PLANNED_FOR_ANY):
        assert again == await SqlReports(engine).hourly_traffic(*bounds)
    if engine.dialect.name == "postgresql":
        async with engine.connect() as connection:
            plans = text("SELECT sum(generic_plans) FROM pg_prepared_statements WHERE statement LIKE :of")
            assert (await connection.execute(plans, {"of": "%FROM hourly JOIN%"})).scalar_one() == 0


async def test_when_single_requests_are_gone_a_cut_hour_counts_where_it_begins(engine: AsyncEngine) -> None:
    ledger = SqlLedger(engine)
    at = us(datetime(2026, 1, 10, 12, 30, tzinfo=UTC))
    await ledger.insert([make_entry(1, intent=make_intent(1, accepted_at_us=at))])
    await ledger.partitions.drop_before(us(datetime(2026, 2, 1, tzinfo=UTC)))
    reports = SqlReports(engine)
    hour = us(datetime(2026, 1, 10, 12, tzinfo=UTC))
    assert [row.requests for row in await reports.sums(SumsQuery(hour, hour + 60_000_000))] == [1]
    assert await reports.sums(SumsQuery(hour + 60_000_000, hour + 3_600_000_000)) == []
