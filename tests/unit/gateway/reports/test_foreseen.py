"""Notices about a month say the same as the page Budgets."""

from datetime import date

from gateway.instants import microseconds as us
from gateway.notices.forecast_notice import forecast_document, forecast_due
from gateway.reports.budgets_service import BudgetsService
from gateway.reports.daily_costs import DailyHistory
from gateway.reports.forecast import burn_of_month
from gateway.reports.foreseen import foresee
from gateway.stores import Budget
from tests.unit.gateway.api.memory_stores import MemoryBudgets
from tests.unit.gateway.reports.differing_months import NOW, USD, Months


async def take_over() -> None: ...


async def test_a_budget_that_its_month_will_pass_is_foreseen_with_the_days() -> None:
    budgets = MemoryBudgets()
    await budgets.set(Budget("team", "red", 36 * USD, "ada", 1, stops=True))
    await budgets.set(Budget("all", "", 500 * USD, "ada", 1))
    service = BudgetsService(budgets, Months(), burn_of_month, take_over, now_us=lambda: us(NOW))
    [found] = await foresee(service, us(NOW))
    standing = (await service.standings())[0]
    assert standing.burn is not None
    assert (found.spent.scope, found.spent.name, found.spent.window_id) == ("team", "red", "month:2026-11-01")
    assert (found.spent.spent_pico_usd, found.spent.stops) == (standing.spent_pico_usd, True)
    assert (found.runs_out, found.probability) == (
        standing.burn.runs_out_middle,
        standing.burn.probability_of_exceeding,
    )
    assert (found.learned_days, found.month_days) == (90, NOW.day - 1)
    assert forecast_due(found, []) is not None
    assert date(2026, 11, 12) < found.runs_out <= date(2026, 11, 30)
    assert forecast_document(found, page=None)["runs_out"] == found.runs_out.isoformat()


async def test_where_nothing_can_be_said_nothing_is_foreseen() -> None:
    def too_short(history: DailyHistory, budget_pico_usd: int, today: date) -> None:
        return None

    budgets = MemoryBudgets()
    await budgets.set(Budget("team", "red", 36 * USD, "ada", 1))
    service = BudgetsService(budgets, Months(), too_short, take_over, now_us=lambda: us(NOW))
    assert await foresee(service, us(NOW)) == []
