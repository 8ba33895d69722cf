"""Forecast, budget burn and unusual days of this deployment's ledger. Computed off the event loop; reads no clock."""

import asyncio
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import cast

import numpy as np

from gateway.errors import InvalidRequest
from gateway.extras import missing_here
from gateway.instants import moment_of
from gateway.money import format_usd
from gateway.reports.daily_costs import BudgetBurn, DailyCost, DailyHistory, Range, TooShort
from gateway.reports.daily_history import read_daily_costs
from gateway.reports.forecast_views import (
    Anomalies,
    Anomaly,
    BudgetOutlookPoint,
    DailyPoint,
    DailyQuery,
    ForecastPoint,
    ForecastQuery,
    ForecastView,
    MonthPoint,
)
from gateway.sums import Dimension, ReportStore

FEW_DAYS = (
    "So few days show no weekly pattern and no growth: up to five of ten such intervals miss the actual cost, where "
    "one should."
)
NOTHING_SPENT = "Nothing was spent in the days seen, so nothing is expected."
MISSPELT = " If that is unlikely, check the spelling of the names asked for."


class ForecastService:
    """Answers `/reports/forecast` and `/reports/anomalies`."""

    def __init__(self, store: ReportStore, now_us: Callable[[], int]) -> None:
        self._store = store
        self._now_us = now_us

    async def forecast(self, query: ForecastQuery) -> ForecastView:
        """Raises InvalidRequest if there are too few days or statsmodels is not installed."""
        now_us = self._now_us()
        return await asyncio.to_thread(self._forecast, query, await self._history(query, now_us), now_us)

    async def anomalies(self, query: DailyQuery) -> Anomalies:
        history = await self._history(query, self._now_us())
        return await asyncio.to_thread(_anomalies, history.complete)

    async def _history(self, query: DailyQuery, now_us: int) -> DailyHistory:
        filters = cast("dict[Dimension, str | None]", query.filters())
        return await read_daily_costs(self._store, filters, now_us, query.history_days)

    def _forecast(self, query: ForecastQuery, history: DailyHistory, now_us: int) -> ForecastView:
        models = _models()
        try:
            begun, generator = history.begun_pico_usd, np.random.default_rng(models.SEED)
            found = models.forecast(history.complete, query.days, begun_pico_usd=begun, generator=generator)
            budget, today = query.budget_pico_usd, moment_of(now_us).date()
            month = models.burn_of_month(history, budget or 0, today).with_today(history.today_pico_usd, today)
        except TooShort as error:
            raise InvalidRequest(f"{error}.") from error
        return ForecastView(
            method=found.method,
            caution=_caution(query, history, models.LEAST_DAYS_FOR_WEEKS),
            history=[DailyPoint(day=one.day, cost_usd=format_usd(one.cost_pico_usd)) for one in history.complete],
            days=[ForecastPoint(day=one.day, **_range(one.cost)) for one in found.days],
            **{f"total_{name}": text for name, text in _range(found.total).items()},
            month=MonthPoint(spent_usd=format_usd(month.spent_pico_usd), **_range(month.projected)),
            budget=None if budget is None else _budget(month),
        )


def _caution(query: ForecastQuery, history: DailyHistory, enough_days: int) -> str | None:
    if not (history.today_pico_usd or any(one.cost_pico_usd for one in history.complete)):
        return NOTHING_SPENT + MISSPELT if query.filters() else NOTHING_SPENT
    return FEW_DAYS if len(history.complete) < enough_days else None


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


def _budget(burn: BudgetBurn) -> BudgetOutlookPoint:
    return BudgetOutlookPoint(
        budget_usd=format_usd(burn.budget_pico_usd),
        spent_usd=format_usd(burn.spent_pico_usd),
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
    """Imports statsmodels on demand: it takes a second and belongs to an extra."""
    try:
        return importlib.import_module("gateway.reports.forecast")
    except ModuleNotFoundError as error:
        raise InvalidRequest(f"Forecasts need statsmodels: {missing_here('reports')}.") from error
