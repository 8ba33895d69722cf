"""Forecast, budget burn and unusual days of this deployment's ledger. Computed off the event loop; reads no clock."""

import asyncio
import calendar
import importlib
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from types import ModuleType
from typing import cast

import numpy as np

from gateway.api.admin_forecast import (
    Anomalies,
    Anomaly,
    BudgetOutlookPoint,
    DailyPoint,
    DailyQuery,
    ForecastPoint,
    ForecastQuery,
    ForecastView,
)
from gateway.api.admin_time import moment_of
from gateway.economics.traffic import HOUR_US
from gateway.errors import InvalidRequest
from gateway.money import format_usd
from gateway.reports.daily_costs import BudgetBurn, DailyCost, Range, TooShort
from gateway.stores import Dimension, ReportStore, SumsQuery

SEED = 20261101
"""Fixed, so that the same question has the same answer."""
DAY_US = 24 * HOUR_US
EPOCH_DAY = date(1970, 1, 1)


class ForecastService:
    """Answers `/reports/forecast` and `/reports/anomalies`."""

    def __init__(self, store: ReportStore, now_us: Callable[[], int]) -> None:
        self._store = store
        self._now_us = now_us

    async def forecast(self, query: ForecastQuery) -> ForecastView:
        """Raises InvalidRequest, in a sentence, where nothing can be said."""
        history, today_pico = await self._history(query)
        return await asyncio.to_thread(self._forecast, query, history, today_pico)

    async def anomalies(self, query: DailyQuery) -> Anomalies:
        history, _ = await self._history(query)
        return await asyncio.to_thread(_anomalies, history)

    async def _history(self, query: DailyQuery) -> tuple[list[DailyCost], int]:
        """Complete days, the ledger's first incomplete one left out; and what today has cost so far."""
        today = self._now_us() // DAY_US
        seen = await self._store.first_and_last_us()
        first = today if seen is None else max(today - query.history_days, -(-seen[0] // DAY_US))
        filters = cast("dict[Dimension, str | None]", query.filters())
        rows = await self._store.sums(SumsQuery(first * DAY_US, (today + 1) * DAY_US, ("day",), filters))
        costs = {row.group["day"]: row.corrected_cost_pico_usd for row in rows}
        days = [EPOCH_DAY + timedelta(days=number) for number in range(first, today)]
        history = [DailyCost(day, costs.get(day.isoformat(), 0)) for day in days]
        return history, costs.get((EPOCH_DAY + timedelta(days=today)).isoformat(), 0)

    def _forecast(self, query: ForecastQuery, history: Sequence[DailyCost], today_pico: int) -> ForecastView:
        models = _models()
        try:
            found = models.forecast(history, query.days, generator=np.random.default_rng(SEED))
            burn = self._burn(query.budget_pico_usd, history)
        except TooShort as error:
            raise InvalidRequest(f"{error}.") from error
        return ForecastView(
            method=found.method,
            history=[DailyPoint(day=one.day, cost_usd=format_usd(one.cost_pico_usd)) for one in history],
            days=[ForecastPoint(day=one.day, **_range(one.cost)) for one in found.days],
            **{f"total_{name}": text for name, text in _range(found.total).items()},
            budget=None if burn is None else _budget(burn, today_pico),
        )

    def _burn(self, budget_pico_usd: int | None, history: Sequence[DailyCost]) -> BudgetBurn | None:
        if budget_pico_usd is None:
            return None
        today = moment_of(self._now_us()).date()
        last = today.replace(day=calendar.monthrange(today.year, today.month)[1])
        generator = np.random.default_rng(SEED)
        return _models().burn_budget(history, budget_pico_usd, today.replace(day=1), last, generator=generator)


def _anomalies(history: Sequence[DailyCost]) -> Anomalies:
    models = _models()
    try:
        found = models.find_unusual_days(history)
    except TooShort as error:
        raise InvalidRequest(f"{error}.") from error
    return Anomalies(
        days_seen=len(history),
        unusual=[
            Anomaly(
                day=one.day,
                cost_usd=format_usd(one.cost_pico_usd),
                expected_usd=format_usd(one.expected_pico_usd),
                score=one.score,
            )
            for one in found
        ],
    )


def _budget(burn: BudgetBurn, today_pico: int) -> BudgetOutlookPoint:
    return BudgetOutlookPoint(
        budget_usd=format_usd(burn.budget_pico_usd),
        spent_usd=format_usd(burn.spent_pico_usd + today_pico),
        **_range(burn.projected),
        probability_of_exceeding=burn.probability_of_exceeding,
        runs_out_early=burn.runs_out_early,
        runs_out=burn.runs_out_middle,
        runs_out_late=burn.runs_out_late,
    )


def _range(given: Range) -> dict[str, str]:
    return {
        "low_usd": format_usd(given.low_pico_usd),
        "expected_usd": format_usd(given.middle_pico_usd),
        "high_usd": format_usd(given.high_pico_usd),
    }


def _models() -> ModuleType:
    """statsmodels takes a second to import and belongs to an extra: only when somebody asks."""
    try:
        return importlib.import_module("gateway.reports.forecast")
    except ModuleNotFoundError as error:
        raise InvalidRequest("Forecasts need statsmodels: pip install 'breakeven[reports]'.") from error
