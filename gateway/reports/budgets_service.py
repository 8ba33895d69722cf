"""Monthly budgets beside what is spent of them and where the month is heading. Knows protocols; reads no clock."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import date

from gateway.limits.values import BudgetScope
from gateway.moments import moment_of
from gateway.reports.daily_costs import BudgetBurn, DailyCost
from gateway.reports.daily_history import DAY_US, read_daily_costs
from gateway.stores import Budget, BudgetStore
from gateway.sums import Dimension, ReportStore, SumsQuery

HISTORY_DAYS = 60

LookAhead = Callable[[Sequence[DailyCost], int, date], BudgetBurn | None]
"""(complete days, budget in pico-USD, today) -> how the month's budget fares; None where too little is known."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One budget now. `spent_pico_usd` includes today; what `burn` says of spending does not."""

    budget: Budget
    spent_pico_usd: int
    burn: BudgetBurn | None


class BudgetsService:
    """One per process. What is ahead changes with the day only, so it is kept for the day.

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
        self._kept: dict[tuple[str, str, int], tuple[Sequence[DailyCost], BudgetBurn | None]] = {}

    async def standings(self) -> list[Standing]:
        """Every budget, with this month's figures."""
        return [await self._standing(budget) for budget in await self._store.budgets()]

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
        today, today_number = moment_of(now_us).date(), now_us // DAY_US
        month = SumsQuery((today_number - today.day + 1) * DAY_US, (today_number + 1) * DAY_US, (), _filters(budget))
        spent = await self._reports.sums(month)
        days, _ = await read_daily_costs(self._reports, _filters(budget), now_us, HISTORY_DAYS)
        key = (budget.scope, budget.name, budget.month_pico_usd)
        kept = self._kept.get(key)
        if kept is None or kept[0] != days:
            burn = await asyncio.to_thread(self._look_ahead, days, budget.month_pico_usd, today)
            kept = self._kept[key] = (days, burn)
        return Standing(budget, sum(one.corrected_cost_pico_usd for one in spent), kept[1])


def _filters(budget: Budget) -> dict[Dimension, str | None]:
    return {} if budget.scope == "all" else {budget.scope: budget.name}
