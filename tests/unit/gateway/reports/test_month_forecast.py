"""A month has one forecast: the command, the overview and every budget agree, to the pico-dollar."""

from collections.abc import Sequence
from datetime import UTC, date, datetime

import numpy as np
import pytest

from gateway.instants import microseconds as us
from gateway.money import parse_usd
from gateway.reports.budgets_service import BudgetsService
from gateway.reports.daily_costs import DailyCost, DailyHistory
from gateway.reports.forecast import SEED, burn_of_month, forecast
from gateway.reports.forecast_service import ForecastService
from gateway.reports.forecast_views import ForecastQuery
from gateway.reports.views import CostQuery
from gateway.stores import Budget
from gateway.sums import Sums, SumsQuery
from tests.unit.gateway.api.memory_stores import MemoryBudgets
from tests.unit.gateway.reports.differing_months import COSTS, NOW, USD, Months


async def test_one_month_has_one_forecast_wherever_it_is_read() -> None:
    async def take_over() -> None: ...

    budgets = MemoryBudgets()
    await budgets.set(Budget("all", "", 50 * USD, "ada", 1))
    service = BudgetsService(budgets, Months(), burn_of_month, take_over, now_us=lambda: us(NOW))
    [standing] = await service.standings()
    assert standing.burn is not None
    asked = ForecastService(Months(), lambda: us(NOW))
    for query in (ForecastQuery(), ForecastQuery(days=1), ForecastQuery(days=3, budget_usd=50)):
        view = await asked.forecast(query)
        found = [parse_usd(text) for text in (view.month.low_usd, view.month.expected_usd, view.month.high_usd)]
        projected = standing.burn.projected
        assert found == [projected.low_pico_usd, projected.middle_pico_usd, projected.high_pico_usd]
        assert parse_usd(view.month.spent_usd) == standing.spent_pico_usd
        assert view.budget is None or view.budget.expected_usd == view.month.expected_usd


async def test_a_forecast_computed_over_midnight_is_of_the_month_that_was_read() -> None:
    """October's spending used to count as November's."""
    at_us = us(datetime(2026, 11, 1, tzinfo=UTC)) - 1
    moments = iter(range(at_us, at_us + 9))
    over, before = [ForecastService(Months(), now_us) for now_us in (lambda: next(moments), lambda: at_us)]
    assert await over.forecast(ForecastQuery(days=1)) == await before.forecast(ForecastQuery(days=1))


async def test_an_interval_of_a_few_days_says_how_often_it_holds() -> None:
    asked = ForecastService(Months(), lambda: us(NOW))
    few, enough = [await asked.forecast(ForecastQuery(days=1, history_days=days)) for days in (13, 14)]
    assert few.caution is not None
    assert "up to five of ten such intervals miss" in few.caution
    assert enough.caution is None


async def test_a_forecast_of_nothing_says_that_it_is_one() -> None:
    class Nothing(Months):
        async def sums(self, query: SumsQuery) -> Sequence[Sums]:
            return []

    asked = ForecastService(Nothing(), lambda: us(NOW))
    misspelt, empty = await asked.forecast(ForecastQuery(team="serch")), await asked.forecast(ForecastQuery())
    assert parse_usd(misspelt.total_high_usd) == 0
    assert misspelt.caution is not None
    assert "check the spelling" in misspelt.caution
    assert empty.caution == "Nothing was spent in the days seen, so nothing is expected."


def test_a_forecast_is_filtered_as_costs_are() -> None:
    """`team=` used to be the spend of a team without a name: nothing."""
    given = {"team": "", "project": None, "key": "", "model": "large"}
    assert ForecastQuery.model_validate(given).filters() == {"team": None, "key": "", "model": "large"}
    assert CostQuery.model_validate(given).filters() == ForecastQuery.model_validate(given).filters()


@pytest.mark.parametrize("seen", [5, 15, 60], ids=["mean", "weekdays", "slope"])
def test_a_day_has_one_forecast_however_many_are_asked(seen: int) -> None:
    history = [DailyCost(day, COSTS[day]) for day in list(COSTS)[:seen]]
    few, many = (forecast(history, days, generator=np.random.default_rng(SEED)) for days in (3, 40))
    assert few.days == many.days[:3]


def test_the_rest_of_a_month_is_the_sum_of_its_days_paths() -> None:
    history = [DailyCost(day, cost) for day, cost in COSTS.items() if day < date(2026, 11, 1)]
    burn = burn_of_month(DailyHistory(tuple(history), (), 0), USD, date(2026, 11, 1))
    assert burn.projected == forecast(history, 30, generator=np.random.default_rng(SEED)).total
