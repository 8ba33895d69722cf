"""Finds monthly budgets that are forecast to be exceeded. Knows no clock."""

from gateway.instants import moment_of
from gateway.limits.values import window_id
from gateway.notices.forecast_notice import Foreseen
from gateway.notices.notice import BudgetSpent
from gateway.reports.budgets_service import BudgetsService, Standing


async def foresee(standings: BudgetsService, now_us: int) -> list[Foreseen]:
    """The budgets forecast to be exceeded. Empty without the `reports` extra."""
    return [found for one in await standings.standings() if (found := _foreseen(one, now_us)) is not None]


def _foreseen(standing: Standing, now_us: int) -> Foreseen | None:
    budget, burn = standing.budget, standing.burn
    if burn is None or burn.runs_out_middle is None:
        return None
    spent = BudgetSpent(
        scope=budget.scope,
        name=budget.name,
        shown=budget.name,
        window_id=window_id("month", now_us),
        amount_pico_usd=budget.month_pico_usd,
        spent_pico_usd=standing.spent_pico_usd,
        stops=budget.stops,
    )
    return Foreseen(
        spent,
        learned_days=standing.learned_days,
        month_days=moment_of(now_us).day - 1,
        probability=burn.probability_of_exceeding,
        low_pico_usd=burn.projected.low_pico_usd,
        middle_pico_usd=burn.projected.middle_pico_usd,
        high_pico_usd=burn.projected.high_pico_usd,
        runs_out=burn.runs_out_middle,
        early=burn.runs_out_early,
        late=burn.runs_out_late,
    )
