"""Forecasts daily costs, when a budget runs out, and finds unusual days.

Imports statsmodels and scipy (the `reports` extra): import this module only when such a report is requested.
Costs are integer pico-USD a day, one row per calendar day, days without traffic included as 0. Forecasts are simulated
paths, because the interval of a month's total is not the sum of its days' intervals. Randomness is passed in.
"""

import calendar
import itertools
import math
from collections.abc import Sequence
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit
from statsmodels.tsa.seasonal import STL

from gateway.reports.daily_costs import (
    WEEK,
    BudgetBurn,
    DailyCost,
    DailyHistory,
    Forecast,
    ForecastDay,
    Method,
    Range,
    TooShort,
    UnusualDay,
)
from gateway.reports.structural_paths import simulate

FloatArray = NDArray[np.float64]

LEAST_DAYS_FOR_A_TREND = 3 * WEEK
LEAST_DAYS_FOR_WEEKS = 2 * WEEK
LEAST_DAYS = 2
PATHS = 1000
SEED = 20_261_101
"""Fixed, so that the same question has the same answer."""
UNUSUAL_SCORE = 4.0
"""Threshold in robust standard deviations from the day's expected cost, if many days were seen."""
NORMAL_PER_MAD = 1.4826
TREND_DAYS = 29
"""Odd, as STL wants it; why not its defaults: docs/decisions/unusual-days.md."""
SMALLEST_SHARE = 0.02
"""Even a noiseless series varies by rounding, so deviations below 2 % of a typical day are never unusual."""


def forecast(
    history: Sequence[DailyCost], days: int, *, begun_pico_usd: int = 0, generator: np.random.Generator
) -> Forecast:
    """The next `days` after the last day of `history`, of which the first has begun and costs at least
    `begun_pico_usd`. Raises TooShort below two days and ValueError on gaps."""
    costs = _series(history)
    method, paths = _simulate_begun(costs, days, begun_pico_usd, generator)
    first = history[-1].day + timedelta(days=1)
    return Forecast(
        method=method,
        days_seen=len(history),
        days=tuple(ForecastDay(first + timedelta(days=ahead), _range(paths[ahead])) for ahead in range(days)),
        total=_range(paths.sum(axis=0)),
    )


def burn_of_month(history: DailyHistory, budget_pico_usd: int, today: date) -> BudgetBurn:
    """Budget burn in the month of `today`, from its complete days and what today costs already. Raises TooShort if
    there are too few days."""
    first, last = today.replace(day=1), today.replace(day=calendar.monthrange(today.year, today.month)[1])
    period, generator = (history.complete, history.month, budget_pico_usd, first, last), np.random.default_rng(SEED)
    return burn_budget(*period, begun_pico_usd=history.begun_pico_usd, generator=generator)


def burn_budget(
    history: Sequence[DailyCost],
    spent_days: Sequence[DailyCost],
    budget_pico_usd: int,
    period_start: date,
    period_end: date,
    *,
    begun_pico_usd: int = 0,
    generator: np.random.Generator,
) -> BudgetBurn:
    """Burn of a budget for `period_start` to `period_end` (inclusive).

    `history` trains the forecast and ends with the last full day; the next one costs at least `begun_pico_usd`.
    `spent_days` are the period's full days, from its first on. Raises TooShort, and ValueError on gaps.
    """
    costs = _series(history)
    yesterday = history[-1].day
    spent = sum(row.cost_pico_usd for row in spent_days)
    begins = max(yesterday + timedelta(days=1), period_start)
    skipped, left = (begins - yesterday).days - 1, (period_end - begins).days + 1
    if left <= 0:
        done = _day_of_exhaustion(spent_days, budget_pico_usd)
        exact = Range(spent, spent, spent)
        return BudgetBurn(spent, budget_pico_usd, exact, float(spent > budget_pico_usd), done, done, done)
    _, paths = _simulate_begun(costs, skipped + left, begun_pico_usd, generator)
    running = spent + np.cumsum(paths[skipped:], axis=0)
    totals = running[-1]
    already = _day_of_exhaustion(spent_days, budget_pico_usd)
    early, middle, late = (
        already or _crossing(np.quantile(running, share, axis=1), budget_pico_usd, begins)
        for share in (0.95, 0.5, 0.05)
    )
    return BudgetBurn(
        spent_pico_usd=spent,
        budget_pico_usd=budget_pico_usd,
        projected=_range(totals),
        probability_of_exceeding=float(np.mean(totals > budget_pico_usd)),
        runs_out_early=early,
        runs_out_middle=middle,
        runs_out_late=late,
    )


def find_unusual_days(history: Sequence[DailyCost]) -> list[UnusualDay]:
    """Days whose cost is far from what weekday and trend suggest, most unusual first. Raises TooShort."""
    costs = _series(history)
    has_trend = len(costs) >= LEAST_DAYS_FOR_A_TREND
    is_log = has_trend and _varies_proportionally(costs)
    values = np.log(costs) if is_log else costs
    expected = _fitted(values) if has_trend else np.full_like(values, float(np.median(values)))
    residuals = values - expected
    freedom = len(costs) - (WEEK + 2 * len(costs) / TREND_DAYS if has_trend else 1)
    typical = float(np.median(np.abs(residuals - np.median(residuals)))) * NORMAL_PER_MAD
    typical *= math.sqrt(len(costs) / freedom)  # deviations from what was fitted to them are smaller than they were
    scale = max(typical, SMALLEST_SHARE if is_log else max(SMALLEST_SHARE * float(np.median(costs)), 1.0))
    means = np.exp(expected) if is_log else expected
    unusual = [
        UnusualDay(row.day, row.cost_pico_usd, round(float(mean)), float(residual / scale))
        for row, mean, residual in zip(history, means, residuals, strict=True)
        if abs(residual) > _threshold(freedom) * scale
    ]
    return sorted(unusual, key=lambda day: -abs(day.score))


def _series(history: Sequence[DailyCost]) -> FloatArray:
    if len(history) < LEAST_DAYS:
        raise TooShort(f"a forecast needs at least {LEAST_DAYS} complete days of costs; there are {len(history)}")
    for before, after in itertools.pairwise(history):
        if after.day - before.day != timedelta(days=1):
            raise ValueError(f"costs must be one row per day in order: {after.day} follows {before.day}")
    return np.array([row.cost_pico_usd for row in history], dtype=np.float64)


def _simulate_begun(
    costs: FloatArray, days: int, begun_pico_usd: int, generator: np.random.Generator
) -> tuple[Method, FloatArray]:
    """On every path the first day costs at least what it does already."""
    method, paths = _simulate(costs, days, generator)
    paths[0] = np.maximum(paths[0], begun_pico_usd)
    return method, paths


def _simulate(costs: FloatArray, days: int, generator: np.random.Generator) -> tuple[Method, FloatArray]:
    """Paths of shape (days, PATHS), never below zero. Days are drawn in order, so a day's forecast does not depend on
    how many days are requested."""
    if not costs.any():
        return "mean of the days seen", np.zeros((days, PATHS))
    scale = float(np.abs(costs).mean())  # a refund may exceed all spend
    if len(costs) < LEAST_DAYS_FOR_WEEKS or float(costs.std()) <= 1e-9 * max(scale, 1.0):
        return "mean of the days seen", _simulate_mean(costs, days, generator)
    has_slope = len(costs) >= LEAST_DAYS_FOR_A_TREND
    is_log = _varies_proportionally(costs)
    paths = simulate(
        np.log(costs / scale) if is_log else costs / scale, days, PATHS, has_slope=has_slope, generator=generator
    )
    method: Method = "level, slope and weekdays" if has_slope else "level and weekdays"
    return method, np.maximum(np.exp(paths) if is_log else paths, 0.0) * scale


def _simulate_mean(costs: FloatArray, days: int, generator: np.random.Generator) -> FloatArray:
    """For only a few days: the mean itself is uncertain, by Student's t."""
    count, deviation = len(costs), float(costs.std(ddof=1))
    level = float(costs.mean()) + generator.standard_t(count - 1, PATHS) * deviation / np.sqrt(count)
    return np.maximum(level + generator.normal(0.0, 1.0, (days, PATHS)) * deviation, 0.0)


def _varies_proportionally(costs: FloatArray) -> bool:
    """As costs do if every day is well above zero: then logarithms are used."""
    return float(costs.min()) > SMALLEST_SHARE * float(np.abs(costs).mean())


def _fitted(values: FloatArray) -> FloatArray:
    """Robust trend and weekday, so that an unusual day does not influence its own expectation. Each weekday is the same
    in all weeks: one that may change from week to week follows the noise."""
    always = 10 * len(values) + 1  # odd, as STL wants it
    fitted = STL(values, period=WEEK, seasonal=always, seasonal_deg=0, trend=TREND_DAYS, robust=True).fit()
    return np.asarray(fitted.trend + fitted.seasonal, dtype=np.float64)


def _threshold(freedom: float) -> float:
    """As improbable by Student's t as UNUSUAL_SCORE by the normal distribution, since few days say little of how much
    days vary."""
    return -float(stdtrit(freedom, ndtr(-UNUSUAL_SCORE)))


def _range(values: FloatArray) -> Range:
    low, middle, high = (round(float(value)) for value in np.quantile(values, (0.05, 0.5, 0.95)))
    return Range(low, middle, high)


def _crossing(running: FloatArray, budget: int, first: date) -> date | None:
    over = np.flatnonzero(running > budget)
    return first + timedelta(days=int(over[0])) if len(over) else None


def _day_of_exhaustion(days: Sequence[DailyCost], budget: int) -> date | None:
    """None if the budget is not exhausted, or was only until a refund."""
    spent = list(itertools.accumulate(row.cost_pico_usd for row in days))
    if not days or spent[-1] <= budget:
        return None
    return next(row.day for row, total in zip(days, spent, strict=True) if total > budget)
