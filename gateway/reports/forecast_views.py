"""What forecasts of spend and the search for unusual days are asked and answer."""

from datetime import date
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from gateway.money import PICO_PER_USD
from gateway.reports.daily_history import HISTORY_DAYS


class DailyQuery(BaseModel):
    """Complete UTC days before today, of everything or of one team, project, model, ..."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    history_days: int = Field(default=HISTORY_DAYS, ge=2, le=1000)
    team: str | None = Field(default=None, max_length=64)
    project: str | None = Field(default=None, max_length=64)
    key: str | None = Field(default=None, max_length=64)
    model: str | None = Field(default=None, max_length=120)
    provider: str | None = Field(default=None, max_length=120)

    def filters(self) -> dict[str, str]:
        names = ("team", "project", "key", "model", "provider")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class ForecastQuery(DailyQuery):
    """`budget_usd` is for the calendar month under way; without it there is no `budget` in the answer."""

    days: int = Field(default=30, ge=1, le=366)
    budget_usd: float | None = Field(default=None, gt=0, le=1e9)

    @property
    def budget_pico_usd(self) -> int | None:
        return None if self.budget_usd is None else round(self.budget_usd * PICO_PER_USD)


class ForecastPoint(BaseModel):
    """5, 50 and 95 % of the simulated paths."""

    day: date
    low_usd: str
    expected_usd: str
    high_usd: str


class DailyPoint(BaseModel):
    day: date
    cost_usd: str


class MonthPoint(BaseModel):
    """The calendar month under way (UTC): what is booked, today included, and what it will come to."""

    spent_usd: str
    low_usd: str
    expected_usd: str
    high_usd: str


class BudgetOutlookPoint(MonthPoint):
    """That month beside its budget. `runs_out_*`: the day on which 95, 50 and 5 % of the paths have passed it at the
    latest; None where they do not within the month."""

    budget_usd: str
    probability_of_exceeding: float
    runs_out_early: date | None
    runs_out: date | None
    runs_out_late: date | None


class ForecastView(BaseModel):
    """`method` says what the history was long enough for; `total_*` are of all days together, whose interval is not
    the sum of the days' intervals. `month` is the one under way, and the same with or without a `budget`. `caution`:
    where an interval holds less often than it says, or nothing was spent."""

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
    """`score` counts robust standard deviations from what weekday and trend suggest; negative: cheaper."""

    day: date
    cost_usd: str
    expected_usd: str
    score: float


class Anomalies(BaseModel):
    """The strangest first."""

    days_seen: int
    unusual: list[Anomaly]


class Forecasts(Protocol):
    """Both raise InvalidRequest, in a sentence, where the days are too few or the reports extra is not installed."""

    async def forecast(self, query: ForecastQuery) -> ForecastView: ...

    async def anomalies(self, query: DailyQuery) -> Anomalies: ...
