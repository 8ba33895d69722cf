"""Ends of days, months and years on both databases: each entry is on the right side, in budgets and in reports."""

import random
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.instants import HOUR_US, microseconds, moment_of
from gateway.limits.admission import Admission
from gateway.limits.counters import budget_account
from gateway.limits.spending import Spending
from gateway.limits.values import parse_limits
from gateway.reports.daily_history import read_daily_costs
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.sums import Dimension, SumsQuery
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = pytest.mark.integration


def us(text: str) -> int:
    return microseconds(datetime.fromisoformat(text).replace(tzinfo=UTC))


async def insert(engine: AsyncEngine, moments_us: list[int], **given: Any) -> int:
    """Inserts an entry at each time; returns the cost of one."""
    batch = [make_entry(n, intent=make_intent(n, accepted_at_us=at, **given)) for n, at in enumerate(moments_us)]
    await SqlLedger(engine).insert(batch)
    assert batch[0].cost is not None
    return batch[0].cost.total_pico_usd


async def test_a_budget_counts_all_of_its_window_also_what_was_booked_while_a_clock_was_ahead(
    engine: AsyncEngine,
) -> None:
    end = us("2027-01-01")
    before = [us("2026-12-24T10:00"), us("2026-12-24T23:59"), us("2026-12-29"), end - 1]
    one = await insert(engine, [us("2026-11-30T23:59"), *before, end, us("2031-07-01")])
    windows = {"d": ("day", "2026-12-24", 2), "m": ("month", "2026-12-01", 4), "t": ("total", "1970-01-01", 7)}
    for key, (window, begins, requests) in windows.items():
        admission = Admission(limits={"key-1": parse_limits({"budget_usd": "1", "budget_window": window})})
        admission.strict = {("team", "search"): 1}
        booked = await Spending(SqlReports(engine), admission, lambda: us("2026-12-24T12:00"))()
        assert booked[budget_account("key-1", f"{window}:{begins}")] == requests * one, key
        assert booked[budget_account("search", "month:2026-12-01", scope="team")] == 4 * one
    of_team: dict[Dimension, str | None] = {"team": "search"}
    shown = await read_daily_costs(SqlReports(engine), of_team, us("2026-12-24T12:00"), 90, of_budget=True)
    assert shown.today_pico_usd + sum(day.cost_pico_usd for day in shown.month) == 4 * one, "as pages and forecasts say"


ZONES = {
    "Australia/Lord_Howe": "2026-04-04",  # half an hour back
    "Pacific/Chatham": "2026-09-26",  # 12:45 ahead, and an hour forward
    "America/Havana": "2026-11-01",  # back over midnight
    "Pacific/Apia": "2011-12-30",  # a day that never was
    "America/St_Johns": "2008-02-28",  # 3:30 behind, and a 29th of February
}


@pytest.mark.parametrize(("zone", "around"), ZONES.items())
async def test_sums_by_local_day_and_month_are_those_of_the_entries(
    engine: AsyncEngine, zone: str, around: str
) -> None:
    generator = random.Random(zone)
    begins = us(around) - 40 * HOUR_US
    moments = sorted(begins + generator.randrange(80 * HOUR_US) for _ in range(120))
    moments += range(begins, begins + 80 * HOUR_US, HOUR_US // 4)
    one = await insert(engine, moments)
    units: dict[Dimension, str] = {"day": "%Y-%m-%d", "month": "%Y-%m"}
    for unit, form in units.items():
        for since, until in ((begins, begins + 80 * HOUR_US), (begins + 13 * 60_000_000, begins + 50 * HOUR_US + 7)):
            expected: dict[str, int] = {}
            for at in moments:
                if since <= at < until:
                    label = moment_of(at).astimezone(ZoneInfo(zone)).strftime(form)
                    expected[label] = expected.get(label, 0) + one
            rows = await SqlReports(engine).sums(SumsQuery(since, until, (unit,), {}, zone))
            assert {row.group[unit]: row.cost_pico_usd for row in rows} == expected
