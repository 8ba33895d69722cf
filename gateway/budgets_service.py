"""Monthly budgets beside what is spent of them and where the month is heading. Knows protocols; reads no clock."""

import asyncio
import calendar
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from gateway.api.admin_time import microseconds, moment_of
from gateway.stores import Budget, BudgetStore, Dimension, ReportStore, SumsQuery

HISTORY_DAYS = 60


@dataclass(frozen=True, slots=True)
class Outlook:
    """Of one month: what it will come to (5, 50 and 95 % of simulated paths) and when the budget is spent.

    `runs_out` is the day on which the middle path passes the budget; None: not in this month.
    """

    low_pico_usd: int
    expected_pico_usd: int
    high_pico_usd: int
    probability_of_exceeding: float
    runs_out: date | None


@dataclass(frozen=True, slots=True)
class DaysOfCost:
    """Complete days, oldest first and without a gap; the last one is yesterday."""

    first: date
    pico_usd: tuple[int, ...]


LookAhead = Callable[[DaysOfCost, int, date, date], Outlook | None]
"""(days, budget in pico-USD, first and last day of the month) -> outlook; None where too little is known."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One budget now. `spent_pico_usd` includes today."""

    budget: Budget
    spent_pico_usd: int
    outlook: Outlook | None


class BudgetsService:
    """One per process. An outlook changes with the day only, so it is kept for the day."""

    def __init__(
        self, store: BudgetStore, reports: ReportStore, look_ahead: LookAhead, *, now_us: Callable[[], int]
    ) -> None:
        self.store = store
        self._reports = reports
        self._look_ahead = look_ahead
        self._now_us = now_us
        self._kept: dict[tuple[str, str, int], tuple[DaysOfCost, Outlook | None]] = {}

    async def standings(self) -> list[Standing]:
        """Every budget, with this month's figures."""
        return [await self._standing(budget) for budget in await self.store.budgets()]

    async def _standing(self, budget: Budget) -> Standing:
        now = moment_of(self._now_us())
        today = now.replace(hour=0, minute=0, second=0, microsecond=0)
        month = today.replace(day=1)
        filters: dict[Dimension, str | None] = {} if budget.scope == "all" else {budget.scope: budget.name}
        spent = await self._reports.sums(SumsQuery(_us(month), _us(today + timedelta(days=1)), (), filters))
        days = await self._history(today, filters)
        key = (budget.scope, budget.name, budget.month_pico_usd)
        kept = self._kept.get(key)
        if kept is None or kept[0] != days:
            last = month.date().replace(day=calendar.monthrange(month.year, month.month)[1])
            outlook = await asyncio.to_thread(
                self._look_ahead, days, budget.month_pico_usd, month.date(), last
            ) if days.pico_usd else None  # fmt: skip
            kept = self._kept[key] = (days, outlook)
        return Standing(budget, sum(one.corrected_cost_pico_usd for one in spent), kept[1])

    async def _history(self, today: datetime, filters: dict[Dimension, str | None]) -> DaysOfCost:
        """From the ledger's first complete day on, at most so many."""
        seen = await self._reports.first_and_last_us()
        first = max(today - timedelta(days=HISTORY_DAYS), moment_of(seen[0])) if seen else today
        first = first.replace(hour=0, minute=0, second=0, microsecond=0)
        if seen and moment_of(seen[0]) > first:
            first += timedelta(days=1)  # the ledger began within this day
        if first >= today:
            return DaysOfCost(first.date(), ())
        rows = await self._reports.sums(SumsQuery(_us(first), _us(today), ("day",), filters))
        by_day = {row.group["day"]: row.corrected_cost_pico_usd for row in rows}
        count = (today - first).days
        return DaysOfCost(
            first.date(), tuple(by_day.get((first.date() + timedelta(days=n)).isoformat(), 0) for n in range(count))
        )


def _us(moment: datetime) -> int:
    found = microseconds(moment)
    assert found is not None
    return found
