"""What is said of daily costs: forecasts, budget burn, unusual days. Values only: computing them is forecast.py's."""

from dataclasses import dataclass
from datetime import date
from typing import Literal

Method = Literal["level, slope and weekdays", "level", "mean of the days seen"]


class TooShort(ValueError):
    """Fewer days than any statement about the next ones needs."""


@dataclass(frozen=True, slots=True)
class DailyCost:
    day: date
    cost_pico_usd: int


@dataclass(frozen=True, slots=True)
class Range:
    """5 %, 50 % and 95 % of the simulated paths, pico-USD."""

    low_pico_usd: int
    middle_pico_usd: int
    high_pico_usd: int


@dataclass(frozen=True, slots=True)
class ForecastDay:
    day: date
    cost: Range


@dataclass(frozen=True, slots=True)
class Forecast:
    method: Method
    days_seen: int
    days: tuple[ForecastDay, ...]
    total: Range


@dataclass(frozen=True, slots=True)
class BudgetBurn:
    """`runs_out_*` are None where that share of the paths stays within the budget until the period ends."""

    spent_pico_usd: int
    budget_pico_usd: int
    projected: Range
    probability_of_exceeding: float
    runs_out_early: date | None
    runs_out_middle: date | None
    runs_out_late: date | None


@dataclass(frozen=True, slots=True)
class UnusualDay:
    """`score` counts robust standard deviations; negative: cheaper than expected."""

    day: date
    cost_pico_usd: int
    expected_pico_usd: int
    score: float
