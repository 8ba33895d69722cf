"""Value types for daily costs: forecasts, budget burn, unusual days. forecast.py computes them."""

from dataclasses import dataclass, replace
from datetime import date
from statistics import median_low
from typing import Final, Literal

WEEK: Final = 7
Method = Literal["level, slope and weekdays", "level and weekdays", "mean of the days seen"]


class TooShort(ValueError):
    """Too few days for a forecast."""


@dataclass(frozen=True, slots=True)
class DailyCost:
    day: date
    cost_pico_usd: int


@dataclass(frozen=True, slots=True)
class DailyHistory:
    """`complete` days train a forecast, oldest first and without gaps. `month` are the complete days of the current
    month, which its budget has paid for, whether or not a forecast may learn from them. Today's bookings are in neither
    and include what a clock running ahead booked in the rest of the month, which also counts against a budget."""

    complete: tuple[DailyCost, ...]
    month: tuple[DailyCost, ...]
    today_pico_usd: int

    @property
    def begun_pico_usd(self) -> int:
        """What today costs at least, once that is more than its weekday usually costs; until then, 0. Rounded down by
        up to a ninth: forecasts are cached, and every request would change them."""
        weekdays = [day.cost_pico_usd for day in self.complete[-WEEK::-WEEK]]
        if weekdays and self.today_pico_usd <= median_low(weekdays):
            return 0
        dropped = max(0, self.today_pico_usd.bit_length() - 4)
        return self.today_pico_usd >> dropped << dropped


@dataclass(frozen=True, slots=True)
class Range:
    """The 5 %, 50 % and 95 % quantiles of the simulated paths, in pico-USD."""

    low_pico_usd: int
    middle_pico_usd: int
    high_pico_usd: int

    def at_least(self, pico_usd: int) -> "Range":
        ends = (self.low_pico_usd, self.middle_pico_usd, self.high_pico_usd)
        return Range(*(max(end, pico_usd) for end in ends))


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
    """`runs_out_*` are None if that share of the paths stays within the budget until the period ends.

    `spent_pico_usd` covers complete days, until `with_today` adds what is booked today.
    """

    spent_pico_usd: int
    budget_pico_usd: int
    projected: Range
    probability_of_exceeding: float
    runs_out_early: date | None
    runs_out_middle: date | None
    runs_out_late: date | None

    def with_opening(self, pico_usd: int, budget_pico_usd: int) -> "BudgetBurn":
        """Restates a burn of the remaining budget for the whole one, adding what had been spent elsewhere."""
        ends = (self.projected.low_pico_usd, self.projected.middle_pico_usd, self.projected.high_pico_usd)
        return replace(
            self,
            spent_pico_usd=self.spent_pico_usd + pico_usd,
            budget_pico_usd=budget_pico_usd,
            projected=Range(*(end + pico_usd for end in ends)),
        )

    def with_today(self, today_pico_usd: int, today: date) -> "BudgetBurn":
        """Adds what is already booked today, which is certain: the month costs at least that, and a smaller budget is
        exhausted."""
        spent = self.spent_pico_usd + today_pico_usd
        is_gone = spent > self.budget_pico_usd
        ends = (self.runs_out_early, self.runs_out_middle, self.runs_out_late)
        early, middle, late = (min(end or today, today) if is_gone else end for end in ends)
        return replace(
            self,
            spent_pico_usd=spent,
            projected=self.projected.at_least(spent),
            probability_of_exceeding=1.0 if is_gone else self.probability_of_exceeding,
            runs_out_early=early,
            runs_out_middle=middle,
            runs_out_late=late,
        )


@dataclass(frozen=True, slots=True)
class UnusualDay:
    """`score` counts robust standard deviations; negative: cheaper than expected."""

    day: date
    cost_pico_usd: int
    expected_pico_usd: int
    score: float
