"""Costs of a request that several providers bill are summed under each of them, on both databases."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.instants import HOUR_US
from gateway.ledger.entry import Attempt, Cost, Entry, PaidTo
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.sums import Dimension, Sums, SumsQuery
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = pytest.mark.integration
DAY = 20_600 * 24 * HOUR_US
REFUSED = PaidTo("cheap-company", "small-1", False, 30, 30)
SILENT = PaidTo("slow-company", "slow-1", False, 0, 500)
NO_FILTERS: dict[Dimension, str | None] = {}
UNBOUNDED = PaidTo("slow-company", "slow-1", False, 0, None)


def entry(number: int, minute: int, *tries: tuple[str, int, PaidTo], upper: int | None = 0) -> Entry:
    """An entry answered by openai for 100, after `tries` of (model, cost, who bills it)."""
    others = sum(cost for _, cost, _ in tries)
    attempts = [
        Attempt(place, model, "other", "escalated:empty", 0.0, 1.0, cost, 200, paid)
        for place, (model, cost, paid) in enumerate(tries, 1)
    ]
    cost = Cost(input_pico_usd=100, other_pico_usd=others, list_pico_usd=100 + others)
    return make_entry(
        number,
        intent=make_intent(number, accepted_at_us=DAY + minute * 60_000_000, team="red", tags=("one", "two")),
        cost=cost,
        cost_lower_pico_usd=100 + sum(paid.lower_pico_usd for _, _, paid in tries),
        cost_upper_pico_usd=upper,
        attempts=(*attempts, Attempt(len(tries) + 1, "mid-hosted", "openai", "answered", 0.0, 1.0, 0, 200)),
    )


ENTRIES = [
    entry(1, 5, ("small", 30, REFUSED), upper=130),
    entry(2, 35, ("small", 30, REFUSED), ("slow", 50, SILENT), upper=630),
    entry(3, 95, ("slow", 50, UNBOUNDED), upper=None),
]


@pytest.fixture
async def reports(engine: AsyncEngine) -> SqlReports:
    await SqlLedger(engine).insert(ENTRIES)
    return SqlReports(engine)


async def by_provider(
    reports: SqlReports, since: int, until: int, filters: Mapping[Dimension, str | None] = NO_FILTERS
) -> Mapping[str | None, Sums]:
    """Sums by provider between two minutes of the day."""
    query = SumsQuery(DAY + since * 60_000_000, DAY + until * 60_000_000, ("provider",), filters)
    return {row.group["provider"]: row for row in await reports.sums(query)}


async def test_each_provider_has_what_it_was_paid_and_the_answering_one_every_request(reports: SqlReports) -> None:
    found = await by_provider(reports, 0, 24 * 60)
    assert {name: (row.requests, row.cost_pico_usd, row.list_pico_usd) for name, row in found.items()} == {
        "openai": (3, 300, 300),
        "cheap-company": (0, 60, 60),
        "slow-company": (0, 100, 100),
    }
    assert {name: (row.lower_pico_usd, row.upper_pico_usd, row.unbounded_requests) for name, row in found.items()} == {
        "openai": (300, 200, 1),
        "cheap-company": (60, 60, 0),
        "slow-company": (0, 500, 1),
    }


@pytest.mark.parametrize(("since", "until"), [(0, 30), (20, 40), (0, 100), (90, 24 * 60)])
async def test_a_period_that_cuts_hours_says_the_same(reports: SqlReports, since: int, until: int) -> None:
    inside = [one for one in ENTRIES if since * 60_000_000 <= one.intent.accepted_at_us - DAY < until * 60_000_000]
    paid = {"openai": 100 * len(inside)}
    for attempt in (attempt for one in inside for attempt in one.attempts if attempt.paid_to):
        assert attempt.paid_to is not None
        paid[attempt.paid_to.provider] = paid.get(attempt.paid_to.provider, 0) + (attempt.cost_pico_usd or 0)
    found = await by_provider(reports, since, until)
    assert {name: row.cost_pico_usd for name, row in found.items()} == paid
    for name, cost in paid.items():
        either: list[dict[Dimension, str | None]] = [{"provider": name}, {"provider": name, "tag": "two"}]
        for filters in either:
            filtered = await by_provider(reports, since, until, filters)
            assert {one: row.cost_pico_usd for one, row in filtered.items()} == {name: cost}
    assert not await by_provider(reports, since, until, {"tag": "three"})


async def test_what_is_paid_to_a_provider_that_answers_nothing_is_in_its_next_report(
    engine: AsyncEngine, reports: SqlReports
) -> None:
    """Kept sums of that provider alone stayed as they were, since no request was added to them."""
    whole = SumsQuery(DAY, DAY + 24 * 30 * HOUR_US, (), {"provider": "cheap-company"})
    queries = [whole, replace(whole, by=("hour",))]
    assert [[row.cost_pico_usd for row in await reports.sums(query)] for query in queries] == [[60], [60]]
    await SqlLedger(engine).insert([entry(4, 5, ("small", 30, REFUSED), upper=130)])
    assert [[row.cost_pico_usd for row in await reports.sums(query)] for query in queries] == [[90], [90]]


@pytest.mark.parametrize(
    "by", [(), ("team",), ("model",), ("backend", "upstream_model"), ("day",), ("hour", "provider"), ("is_simulated",)]
)
async def test_every_grouping_adds_up_to_the_same(reports: SqlReports, by: tuple[Dimension, ...]) -> None:
    rows = await reports.sums(SumsQuery(DAY, DAY + 24 * HOUR_US, by))
    assert sum(row.cost_pico_usd for row in rows) == sum(one.cost.total_pico_usd for one in ENTRIES if one.cost)
    assert sum(row.requests for row in rows) == len(ENTRIES)


async def test_the_request_keeps_every_dollar_and_who_was_paid(engine: AsyncEngine, reports: SqlReports) -> None:
    del reports
    assert [await SqlLedger(engine).get(one.intent.request_id) for one in ENTRIES] == ENTRIES


async def test_of_an_unpriced_request_nothing_is_in_the_sums(engine: AsyncEngine) -> None:
    unpriced = make_entry(9, cost=None, cost_upper_pico_usd=None, attempts=ENTRIES[0].attempts)
    await SqlLedger(engine).insert([unpriced])
    [row] = await SqlReports(engine).sums(SumsQuery(0, 2**62, ("provider",)))
    assert (row.group["provider"], row.cost_pico_usd, row.unpriced_requests) == ("openai", 0, 1)
