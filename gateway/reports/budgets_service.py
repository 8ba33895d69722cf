"""Monthly budgets with their spend and the month's forecast. Knows protocols; reads no clock."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from gateway.instants import moment_of
from gateway.limits.openings import Openings, by_budget, no_openings
from gateway.limits.values import BudgetScope, window_id
from gateway.reports.daily_costs import BudgetBurn, DailyCost, DailyHistory
from gateway.reports.daily_history import HISTORY_DAYS, read_budgets_costs, read_daily_costs
from gateway.stores import Budget, BudgetStore
from gateway.sums import ReportStore

LookAhead = Callable[[DailyHistory, int, date], BudgetBurn | None]
"""(days, budget in pico-USD, today) -> budget burn forecast from complete days; None if there are too few."""

OWNED: tuple[Literal["team", "project"], ...] = ("team", "project")

Days = tuple[tuple[DailyCost, ...], tuple[DailyCost, ...], int]


@dataclass(frozen=True, slots=True)
class Standing:
    """One budget's spend so far, today included, and the part spent before it was moved here; `burn` forecasts the
    rest from complete days and what today costs already."""

    budget: Budget
    spent_pico_usd: int
    burn: BudgetBurn | None
    learned_days: int
    opening_pico_usd: int = 0

    @property
    def share(self) -> float:
        """Share of the budget spent; 1 for a budget of $0, which is always spent."""
        return self.spent_pico_usd / self.budget.month_pico_usd if self.budget.month_pico_usd else 1.0


class BudgetsService:
    """One per process. Forecasts are cached until a day is added or corrected, or today costs much more.

    `take_over` is called after a change, so that it takes effect here and in every other worker.
    """

    def __init__(
        self,
        store: BudgetStore,
        reports: ReportStore,
        look_ahead: LookAhead,
        take_over: Callable[[], Awaitable[None]],
        *,
        now_us: Callable[[], int],
        openings: Openings = no_openings,
    ) -> None:
        self._store = store
        self._take_over = take_over
        self._reports = reports
        self._look_ahead = look_ahead
        self._now_us = now_us
        self._openings = openings
        self._kept: dict[tuple[str, str], tuple[int, Days, BudgetBurn | None]] = {}

    async def standings(self, of_team: str | None = None, scope: BudgetScope | None = None) -> list[Standing]:
        """All budgets, one team's, or those of a scope, with this month's figures."""
        wanted = await self._store.budgets()
        there = {(one.scope, one.name) for one in wanted}
        self._kept = {whose: kept for whose, kept in self._kept.items() if whose in there}
        if of_team is not None:
            wanted = [one for one in wanted if (one.scope, one.name) == ("team", of_team)]
        wanted = [one for one in wanted if scope in (None, one.scope)]
        now_us = self._now_us()
        return await self._all_standings(wanted, now_us)

    async def set(self, budget: Budget) -> Standing:
        """Create or replace the budget of that scope and name; returns its standing. Other budgets are not read."""
        await self._store.set(budget)
        await self._take_over()
        [standing] = await self._all_standings([budget], self._now_us())
        return standing

    async def remove(self, scope: BudgetScope, name: str, *, author: str) -> bool:
        """False if there is no such budget."""
        if not await self._store.remove(scope, name, author=author):
            return False
        await self._take_over()
        return True

    async def _all_standings(self, budgets: Sequence[Budget], now_us: int) -> list[Standing]:
        histories, month = await self._histories(budgets, now_us), window_id("month", now_us)
        opened = by_budget(await self._openings([month]) if budgets else ())
        return [
            await self._standing(
                one, histories[one.scope, one.name], now_us, opened.get((one.scope, one.name, month), 0)
            )
            for one in budgets
        ]

    async def _histories(self, budgets: Sequence[Budget], now_us: int) -> dict[tuple[str, str], DailyHistory]:
        found: dict[tuple[str, str], DailyHistory] = {}
        for scope in OWNED:
            names = [one.name for one in budgets if one.scope == scope]
            read = await read_budgets_costs(self._reports, scope, names, now_us, HISTORY_DAYS)
            found |= {(scope, name): history for name, history in read.items()}
        for one in budgets:
            if one.scope == "all":
                of_all = await read_daily_costs(self._reports, {}, now_us, HISTORY_DAYS, of_budget=True)
                found[one.scope, one.name] = of_all
        return found

    async def _standing(self, budget: Budget, history: DailyHistory, now_us: int, opening: int) -> Standing:
        today, left = moment_of(now_us).date(), max(0, budget.month_pico_usd - opening)
        spent = sum(day.cost_pico_usd for day in history.month) + history.today_pico_usd + opening
        whose, asked = (budget.scope, budget.name), (left, (history.complete, history.month, history.begun_pico_usd))
        kept = self._kept.get(whose)
        if kept is None or kept[:2] != asked:
            burn = await asyncio.to_thread(self._look_ahead, history, left, today)
            kept = self._kept[whose] = (*asked, burn)
        burn = kept[2]
        if burn is not None:
            burn = burn.with_opening(opening, budget.month_pico_usd).with_today(history.today_pico_usd, today)
        return Standing(budget, spent, burn, len(history.complete), opening)
