"""Queries and answers of the forecasts of spend and of the search for unusual days."""

from datetime import date
from typing import ClassVar, Protocol

from pydantic import BaseModel, Field

from gateway.money import MOST_USD, PICO_PER_USD
from gateway.reports.daily_history import HISTORY_DAYS
from gateway.reports.dimensions import filters_of
from gateway.strict import Strict


class DailyQuery(Strict):
    """Complete UTC days before today, of all spend or of one team, project, model and so on. Empty text is what has no
    team or project."""

    FILTERS: ClassVar = ("team", "project", "key", "model", "provider")

    history_days: int = Field(default=HISTORY_DAYS, ge=2, le=1000)
    team: str | None = Field(default=None, max_length=64)
    project: str | None = Field(default=None, max_length=64)
    key: str | None = Field(default=None, max_length=64)
    model: str | None = Field(default=None, max_length=120)
    provider: str | None = Field(default=None, max_length=120)

    def filters(self) -> dict[str, str | None]:
        return filters_of({name: getattr(self, name) for name in self.FILTERS})


class ForecastQuery(DailyQuery):
    """`budget_usd` is for the current calendar month; without it the answer's `budget` is null."""

    days: int = Field(default=30, ge=1, le=366)
    budget_usd: float | None = Field(default=None, gt=0, le=MOST_USD)

    @property
    def budget_pico_usd(self) -> int | None:
        return None if self.budget_usd is None else round(self.budget_usd * PICO_PER_USD)


class ForecastPoint(BaseModel):
    """The 5th, 50th and 95th percentile of the simulated paths."""

    day: date
    low_usd: str
    expected_usd: str
    high_usd: str


class DailyPoint(BaseModel):
    day: date
    cost_usd: str


class MonthPoint(BaseModel):
    """The current calendar month (UTC): what is booked so far, today included, and what it will come to."""

    spent_usd: str
    low_usd: str
    expected_usd: str
    high_usd: str


class BudgetOutlookPoint(MonthPoint):
    """The current month against its budget. `runs_out_early`, `runs_out` and `runs_out_late` are the days by which 5,
    50 and 95 % of the simulated paths have spent it; null if they do not within the month."""

    budget_usd: str
    probability_of_exceeding: float
    runs_out_early: date | None
    runs_out: date | None
    runs_out_late: date | None


class ForecastView(BaseModel):
    """`method` is the forecasting method that the length of the history allows. `total_*` is for all days together;
    its interval is not the sum of the daily ones. `month` is the current one, and does not depend on a `budget`.
    `caution` is given if the intervals hold less often than stated, or if nothing was spent."""

    method: str
    caution: str | None = None
    history: list[DailyPoint]
    days: list[ForecastPoint]
    total_low_usd: str
    total_expected_usd: str
    total_high_usd: str
    month: MonthPoint
    budget: BudgetOutlookPoint | None


class Anomaly(BaseModel):
    """`score` is the distance from what weekday and trend suggest, in robust standard deviations; negative: cheaper."""

    day: date
    cost_usd: str
    expected_usd: str
    score: float


class Anomalies(BaseModel):
    """Most unusual first."""

    days_seen: int
    unusual: list[Anomaly]


class Forecasts(Protocol):
    """Both raise InvalidRequest, with a sentence, if there are too few days or the reports extra is not installed."""

    async def forecast(self, query: ForecastQuery) -> ForecastView: ...

    async def anomalies(self, query: DailyQuery) -> Anomalies: ...
