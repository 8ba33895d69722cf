"""Daily costs as forecasts and budgets read them: complete days without a gap, and today apart."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Literal

import pytest

from gateway.instants import microseconds as us
from gateway.reports.daily_costs import DailyCost, DailyHistory
from gateway.reports.daily_history import MANY, read_budgets_costs, read_daily_costs
from gateway.storage.sql.reports import SqlReports
from gateway.sums import Sums, SumsQuery
from tests.unit.gateway.api.memory_stores import OneSum
from tests.unit.gateway.reports.month import NOW_US, Month

COSTS = {date(2026, 11, 1): 1, date(2026, 11, 2): 2, date(2026, 11, 4): 4}


class Ledger(OneSum):
    """Some days have a cost; the ledger's beginning is an argument."""

    def __init__(self, began: datetime | None) -> None:
        self.began = began

    async def sums(self, query: SumsQuery) -> list[Sums]:
        begun = {day: us(datetime(day.year, day.month, day.day, tzinfo=UTC)) for day in COSTS}
        wanted = [day for day, at_us in begun.items() if query.since_us <= at_us < query.until_us]
        return [Sums({"day": day.isoformat()}, input_pico_usd=COSTS[day]) for day in wanted]

    async def first_and_last_us(self) -> tuple[int, int] | None:
        return None if self.began is None else (us(self.began), us(self.began))


@pytest.mark.parametrize(
    ("began", "days", "costs"),
    [
        (datetime(2026, 11, 1, tzinfo=UTC), 60, [(1, 1), (2, 2), (3, 0)]),
        (datetime(2026, 11, 1, 0, 0, 1, tzinfo=UTC), 60, [(2, 2), (3, 0)]),
        (datetime(2026, 10, 1, tzinfo=UTC), 2, [(2, 2), (3, 0)]),
        (datetime(2026, 11, 4, 9, tzinfo=UTC), 60, []),
    ],
    ids=["from its first midnight", "its first day is incomplete", "at most so many days", "it began today"],
)
async def test_complete_days_and_today(began: datetime, days: int, costs: list[tuple[int, int]]) -> None:
    found = await read_daily_costs(Ledger(began), {}, us(datetime(2026, 11, 4, 15, tzinfo=UTC)), days)
    month = days_of([(1, 1), (2, 2), (3, 0)])
    assert found == DailyHistory(days_of(costs), month, 4), "what the month has paid for is its whole past"


async def test_an_empty_ledger_has_no_days() -> None:
    found = await read_daily_costs(Ledger(None), {}, us(datetime(2026, 10, 1, tzinfo=UTC)), 60)
    assert found == DailyHistory((), (), 0)


@pytest.mark.parametrize("scope", ["team", "project"])
async def test_of_many_budgets_the_sums_are_read_once_and_say_the_same(
    month: Month, scope: Literal["team", "project"]
) -> None:
    """2,000 budgets used to need 4,000 queries, and the page gave up before they were answered."""
    reports = Counted(month.database)
    names = [*sorted({getattr(entry.intent, scope) or "none" for entry in month.entries}), *map(str, range(MANY))]
    each = {name: await read_daily_costs(reports, {scope: name}, NOW_US, 90, of_budget=True) for name in names}
    assert any(day.cost_pico_usd for history in each.values() for day in history.complete)
    reports.asked = 0
    assert await read_budgets_costs(reports, scope, names, NOW_US, 90) == each
    assert reports.asked == 1
    assert await read_budgets_costs(reports, scope, names, NOW_US, 90, most_groups=1) == each
    assert reports.asked == 2 + len(names), "too many groups of others: one by one"


class Counted(SqlReports):
    """Counts how often sums were read."""

    asked = 0

    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        self.asked += 1
        return await super().sums(query)


def days_of(costs: list[tuple[int, int]]) -> tuple[DailyCost, ...]:
    return tuple(DailyCost(date(2026, 11, day), cost) for day, cost in costs)
