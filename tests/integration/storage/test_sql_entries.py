"""Single requests are found by filters, in any order, and those of a batch by its id, on both databases."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace as replaced
from sqlalchemy import delete, update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.instants import HOUR_US
from gateway.instants import microseconds as us
from gateway.ledger.entry import Cost, Entry, Status
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.storage.sql.entries import MOST_HOURS, SqlEntries
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.tables.books import daily, entries, hourly
from gateway.stores import Adjustment, BatchCost, EntryOrder, EntryStore, EntryWanted, Explored
from tests.integration.storage.booked import START
from tests.unit.gateway.ledger.builders import make_decision, make_entry, make_intent, request_id

pytestmark = pytest.mark.integration


async def test_entries_are_found_by_filters_in_pages_newest_first(engine: AsyncEngine, stored: list[Entry]) -> None:
    store: EntryStore = SqlEntries(engine)
    rounded = {entry.intent.request_id for entry in stored if entry.intent.team == "ads" and "eu" in entry.intent.tags}
    found: list[Entry] = []
    before: str | None = None
    while page := await store.find(EntryWanted(team="ads", tag="eu", before=before, limit=7)):
        found += page
        before = page[-1].intent.request_id
    assert {entry.intent.request_id for entry in found} == rounded
    assert len(found) == len(rounded)
    times = [entry.intent.accepted_at_us for entry in found]
    assert times == sorted(times, reverse=True)
    until = START + timedelta(days=1)
    day = await store.find(EntryWanted(until=until, status=Status.cancelled, limit=500))
    assert len(day) == sum(e.intent.accepted_at_us < us(until) and e.status is Status.cancelled for e in stored)
    assert await store.find(EntryWanted(before=request_id(10**9))) == []
    assert await store.find(EntryWanted(before="zz")) == []
    assert await store.find(EntryWanted(tag="e")) == []


FIGURES: dict[EntryOrder, Callable[[Entry], float]] = {
    "cost": lambda one: one.cost.total_pico_usd if one.cost is not None else 0,
    "total_time": lambda one: one.total_seconds,
    "first_token": lambda one: -1.0 if one.time_to_first_token_seconds is None else one.time_to_first_token_seconds,
}


async def test_the_largest_come_first_and_those_without_the_figure_last(
    engine: AsyncEngine, stored: list[Entry]
) -> None:
    without = make_entry(999, intent=make_intent(999, team="ads"), cost=None, time_to_first_token_seconds=None)
    await SqlLedger(engine).insert([without])
    for order, figure in FIGURES.items():
        found = await SqlEntries(engine).find(EntryWanted(team="ads", order=order, limit=500))
        figures = [figure(one) for one in found]
        assert len(set(figures)) > 1
        assert figures == sorted((figure(one) for one in [*stored, without] if one.intent.team == "ads"), reverse=True)
        few = await SqlEntries(engine).find(EntryWanted(team="ads", order=order, limit=3))
        assert [figure(one) for one in few] == figures[:3], order


def dearest_first(entries: list[Entry], corrections: Mapping[str, int]) -> list[str]:
    """Ordered by cost including corrections; among equal ones, and those that cost nothing, the newest first."""

    def key(entry: Entry) -> tuple[int, int, str]:
        number = entry.intent.request_id
        cost = (entry.cost.total_pico_usd if entry.cost is not None else 0) + corrections.get(number, 0)
        return max(cost, 0), entry.intent.accepted_at_us, number

    return [entry.intent.request_id for entry in sorted(entries, key=key, reverse=True)]


@pytest.mark.parametrize("team", ["ads", None])
async def test_the_dearest_are_those_with_their_corrections(
    engine: AsyncEngine, stored: list[Entry], team: str | None
) -> None:
    """A request that a correction made cheaper ranks lower; one that got its first price later is included."""
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
    for limit in (1, 10, 500):
        found = await SqlEntries(engine).find(EntryWanted(team=team, order="cost", limit=limit))
        assert [one.intent.request_id for one in found] == dearest_first(asked, corrections)[:limit]


async def pages_of(engine: AsyncEngine, wanted: EntryWanted) -> list[str]:
    """The numbers of all pages, in order."""
    found: list[str] = []
    while page := await SqlEntries(engine).find(replace(wanted, before=found[-1] if found else None)):
        found += [one.intent.request_id for one in page]
    return found


@pytest.mark.usefixtures("stored")
async def test_page_after_page_of_the_largest_has_each_once_down_to_those_without_the_figure(
    engine: AsyncEngine,
) -> None:
    intents = [make_intent(number, team="ads", batch_id="batch_a") for number in range(2000, 2016)]
    equals = [make_entry(number, intent=one) for number, one in enumerate(intents[:8])]
    bare = {"cost": None, "time_to_first_token_seconds": None}
    equals += [make_entry(number, intent=one, **bare) for number, one in enumerate(intents[8:])]
    await SqlLedger(engine).insert(equals)
    refund = Adjustment(equals[0].intent.request_id, "refund", "credit-7", -(10**12), "outage")
    assert await SqlAdjustments(engine).book([refund], author="ada") == 1
    for order, (team, batch_id) in product(FIGURES, ((None, None), ("ads", None), ("ads", "batch_a"))):
        wanted = EntryWanted(team=team, batch_id=batch_id, order=order, limit=500)
        numbers = [one.intent.request_id for one in await SqlEntries(engine).find(wanted)]
        assert {one.intent.request_id for one in equals} <= set(numbers)
        few = max(len(numbers) // 4, 5)  # so that a page ends among equal ones of a batch
        assert await pages_of(engine, replace(wanted, limit=few)) == numbers, wanted
    for order in FIGURES:
        assert await SqlEntries(engine).find(EntryWanted(order=order, before=request_id(10**9))) == []
        assert await SqlEntries(engine).find(EntryWanted(order=order, before="zz")) == []


@pytest.mark.parametrize("team", ["ads", None])
async def test_pages_below_the_hours_that_are_looked_into_one_by_one_go_on_where_the_one_before_ends(
    engine: AsyncEngine, team: str | None
) -> None:
    """With one request per hour."""

    def alone(number: int) -> Entry:
        at_us = us(START) + number * HOUR_US
        intent = make_intent(number, team="ads" if number % 3 else "search", accepted_at_us=at_us)
        return make_entry(number, intent=intent, total_seconds=float(1 + number * 7919 % 5003))

    many = [alone(number) for number in range(4 * MOST_HOURS)]
    await SqlLedger(engine).insert(many)
    asked = sorted((one for one in many if team in (None, one.intent.team)), key=FIGURES["total_time"], reverse=True)
    found = await pages_of(engine, EntryWanted(team=team, order="total_time", limit=80))
    assert found == [one.intent.request_id for one in asked]


async def test_the_dearest_are_found_though_a_replica_of_an_older_version_wrote_them(
    engine: AsyncEngine, stored: list[Entry]
) -> None:
    """It does not update an hour's largest figures, which stay as they were, or 0."""
    async with engine.begin() as connection:
        for table in (hourly, daily):
            await connection.execute(update(table).values(largest_pico_usd=0, ranked=0))
    found = await SqlEntries(engine).find(EntryWanted(order="cost", limit=20))
    assert [one.intent.request_id for one in found] == dearest_first(stored, {})[:20]


async def test_the_dearest_of_a_period_are_of_it_alone(engine: AsyncEngine, stored: list[Entry]) -> None:
    since, until = START + timedelta(hours=20, minutes=30), START + timedelta(days=2, minutes=10)
    inside = [entry for entry in stored if us(since) <= entry.intent.accepted_at_us < us(until)]
    found = await SqlEntries(engine).find(EntryWanted(since=since, until=until, order="cost", limit=500))
    assert [one.intent.request_id for one in found] == dearest_first(inside, {})


async def test_hours_whose_requests_are_forgotten_are_not_looked_into(engine: AsyncEngine, stored: list[Entry]) -> None:
    async with engine.begin() as connection:
        await connection.execute(delete(entries))
    assert await SqlEntries(engine).find(EntryWanted(order="cost")) == []


async def test_what_a_batch_cost_is_the_sum_of_its_requests_with_their_corrections(engine: AsyncEngine) -> None:
    """Requests without a price are counted but not summed until a correction prices them; a lead does not see other
    teams'."""

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


async def test_the_requests_of_a_batch_are_found_in_every_order_and_come_back_with_its_name(
    engine: AsyncEngine, stored: list[Entry]
) -> None:
    few = [
        replaced(one, intent=replaced(one.intent, request_id=request_id(5000 + n), batch_id="batch_a", end_user="u"))
        for n, one in enumerate(stored[::7])
    ]
    await SqlLedger(engine).insert(few)
    store = SqlEntries(engine)
    orders: list[EntryOrder] = [*FIGURES, "newest"]
    for order in orders:
        found = await store.find(EntryWanted(batch_id="batch_a", order=order, limit=500))
        assert {one.intent.request_id for one in found} == {one.intent.request_id for one in few}
        assert {(one.intent.batch_id, one.intent.end_user) for one in found} == {("batch_a", "u")}
        assert await store.find(EntryWanted(end_user="u", order=order, limit=500)) == found
        assert await store.find(EntryWanted(end_user="u", batch_id="batch_b", order=order)) == []
        times = [(one.intent.accepted_at_us, one.intent.request_id) for one in found]
        if order == "newest":
            assert times == sorted(times, reverse=True)
            rest = await store.find(EntryWanted(batch_id="batch_a", before=times[4][1], limit=500))
            assert [one.intent.request_id for one in rest] == [number for _, number in times[5:]]
        else:
            figures = [max(FIGURES[order](one), 0) for one in found]
            assert figures == sorted(figures, reverse=True)
        mine = await store.find(EntryWanted(batch_id="batch_a", team="ads", order=order, limit=500))
        assert {one.intent.team for one in mine} == {"ads"}
        assert await store.find(EntryWanted(batch_id="batch_b", order=order)) == []


async def test_what_a_rule_explored_is_read_of_its_requests_and_its_period_alone(engine: AsyncEngine) -> None:
    def explored(number: int, rule: str, exploration: int, cost: Cost | None) -> Entry:
        decision = make_decision(rule=rule, expected_cost_pico_usd=70, exploration_pico_usd=exploration)
        accepted_at_us = us(START) + number * HOUR_US
        intent = make_intent(number, accepted_at_us=accepted_at_us, decision=decision)
        return make_entry(number, intent=intent, cost=cost)

    cost = Cost(input_pico_usd=40, output_pico_usd=50, list_pico_usd=1000)
    await SqlLedger(engine).insert(
        [
            explored(1, "tries", 20, cost),
            explored(2, "tries", 20, cost),
            explored(3, "tries", 0, cost),
            explored(4, "other", 20, cost),
            explored(5, "tries", 30, None),
            explored(6, "tries", 20, cost),
        ]
    )
    since_us, until_us = us(START) + 2 * HOUR_US, us(START) + 6 * HOUR_US
    found = [one async for some in SqlEntries(engine).explored("tries", since_us, until_us) for one in some]
    found.sort(key=lambda one: one.exploration_pico_usd)
    assert found == [Explored(90, 70, 20), Explored(None, 70, 30)]
    assert [one.extra_pico_usd for one in found] == [40, 30]
