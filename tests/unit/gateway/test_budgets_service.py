"""What a budget's month looks like from inside it: what is spent, and what the complete days say of the rest."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import pytest

from gateway.budgets_service import BudgetsService, DaysOfCost, Outlook
from gateway.economics.traffic import HourlyTraffic
from gateway.reports.outlook import look_ahead
from gateway.stores import Budget, Sums, SumsQuery
from tests.unit.gateway.api.fakes import MemoryBudgets

USD = 10**12
NOW = datetime(2026, 11, 11, 15, tzinfo=UTC)
FIRST_HOUR = datetime(2026, 11, 1, 7, tzinfo=UTC)


def us(moment: datetime) -> int:
    return round(moment.timestamp()) * 1_000_000


class TenDollarsADay:
    """Every day cost ten dollars, also today; the ledger began on a morning."""

    def __init__(self) -> None:
        self.asked: list[SumsQuery] = []

    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        self.asked.append(query)
        days = max(0, (query.until_us - max(query.since_us, us(datetime(2026, 11, 1, tzinfo=UTC)))) // 86_400_000_000)
        if not query.by:
            return [Sums({}, input_pico_usd=10 * USD * days)]
        first = date(1970, 1, 1) + timedelta(microseconds=query.since_us)
        return [Sums({"day": (first + timedelta(days=n)).isoformat()}, input_pico_usd=10 * USD) for n in range(days)]

    async def hourly_traffic(
        self, since_us: int, until_us: int, *, with_simulated: bool = True, with_shadow: bool = False
    ) -> Sequence[HourlyTraffic]:
        return []

    async def first_and_last_us(self) -> tuple[int, int] | None:
        return us(FIRST_HOUR), us(NOW)


async def test_spent_includes_today_and_the_outlook_rests_on_complete_days() -> None:
    store, reports = MemoryBudgets(), TenDollarsADay()
    seen: list[tuple[DaysOfCost, int, date, date]] = []

    def note(days: DaysOfCost, budget: int, first: date, last: date) -> Outlook | None:
        seen.append((days, budget, first, last))
        return None

    service = BudgetsService(store, reports, note, now_us=lambda: us(NOW))
    await store.set(Budget("team", "red", 200 * USD, "ada", 1))
    [standing] = await service.standings()
    assert standing.spent_pico_usd == 110 * USD
    assert seen == [(DaysOfCost(date(2026, 11, 2), (10 * USD,) * 9), 200 * USD, date(2026, 11, 1), date(2026, 11, 30))]
    assert all(query.filters == {"team": "red"} for query in reports.asked)
    await service.standings()
    assert len(seen) == 1, "the same days were simulated twice"


def test_a_steady_spend_meets_the_budget_when_it_should() -> None:
    days = DaysOfCost(date(2026, 11, 1), (10 * USD,) * 10)
    outlook = look_ahead(days, 205 * USD, date(2026, 11, 1), date(2026, 11, 30))
    assert outlook is not None
    assert outlook.expected_pico_usd == pytest.approx(300 * USD, rel=0.01)
    assert outlook.low_pico_usd <= outlook.expected_pico_usd <= outlook.high_pico_usd
    assert outlook.probability_of_exceeding == 1
    assert outlook.runs_out == date(2026, 11, 21)


def test_one_day_says_nothing() -> None:
    assert look_ahead(DaysOfCost(date(2026, 11, 1), (USD,)), USD, date(2026, 11, 1), date(2026, 11, 30)) is None
