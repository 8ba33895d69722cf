"""Monthly budgets beside what is spent of them and where the month is heading. Knows protocols; reads no clock."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import date

from gateway.limits.values import BudgetScope
from gateway.moments import moment_of
from gateway.reports.daily_costs import BudgetBurn, DailyCost, DailyHistory
from gateway.reports.daily_history import HISTORY_DAYS, read_daily_costs
from gateway.stores import Budget, BudgetStore
from gateway.sums import Dimension, ReportStore

LookAhead = Callable[[DailyHistory, int, date], BudgetBurn | None]
"""(days, budget in pico-USD, today) -> how the budget fares by complete days; None where they are too few."""

Days = tuple[tuple[DailyCost, ...], tuple[DailyCost, ...]]


@dataclass(frozen=True, slots=True)
class Standing:
    """One budget now, today included; what `burn` says of the days to come it learned from complete ones."""

    budget: Budget
    spent_pico_usd: int
    burn: BudgetBurn | None
    learned_days: int


class BudgetsService:
    """One per process. What complete days say of those ahead is kept until one is added or corrected.

    `take_over` is called after a change: what stops must stop here and in every other worker.
    """

    def __init__(
        self,
        store: BudgetStore,
        reports: ReportStore,
        look_ahead: LookAhead,
        take_over: Callable[[], Awaitable[None]],
        *,
        now_us: Callable[[], int],
    ) -> None:
        self._store = store
        self._take_over = take_over
        self._reports = reports
        self._look_ahead = look_ahead
        self._now_us = now_us
        self._kept: dict[tuple[str, str], tuple[int, Days, BudgetBurn | None]] = {}

    async def standings(self, of_team: str | None = None) -> list[Standing]:
        """Every budget, or that of one team, with this month's figures."""
        wanted = await self._store.budgets()
        there = {(one.scope, one.name) for one in wanted}
        self._kept = {whose: kept for whose, kept in self._kept.items() if whose in there}
        if of_team is not None:
            wanted = [one for one in wanted if (one.scope, one.name) == ("team", of_team)]
        return [await self._standing(budget) for budget in wanted]

    async def set(self, budget: Budget) -> None:
        """Make or replace the one of its scope and name."""
        await self._store.set(budget)
        await self._take_over()

    async def remove(self, scope: BudgetScope, name: str, *, author: str) -> bool:
        """False when there is none."""
        if not await self._store.remove(scope, name, author=author):
            return False
        await self._take_over()
        return True

    async def _standing(self, budget: Budget) -> Standing:
        now_us = self._now_us()
        today = moment_of(now_us).date()
        history = await read_daily_costs(self._reports, _filters(budget), now_us, HISTORY_DAYS, of_budget=True)
        spent = sum(day.cost_pico_usd for day in history.month) + history.today_pico_usd
        whose, asked = (budget.scope, budget.name), (budget.month_pico_usd, (history.complete, history.month))
        kept = self._kept.get(whose)
        if kept is None or kept[:2] != asked:
            burn = await asyncio.to_thread(self._look_ahead, history, budget.month_pico_usd, today)
            kept = self._kept[whose] = (*asked, burn)
        burn = None if kept[2] is None else kept[2].with_today(history.today_pico_usd, today)
        return Standing(budget, spent, burn, len(history.complete))


def _filters(budget: Budget) -> dict[Dimension, str | None]:
    return {} if budget.scope == "all" else {budget.scope: budget.name}
