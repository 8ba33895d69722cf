"""Queries and answers about GPUs and models that the deployment does not have."""

from typing import Protocol

from pydantic import BaseModel, Field

from gateway.reports.views import PeriodQuery


class WhatIfQuery(PeriodQuery):
    """`gpu` and `model` default to all in the table; `moved` names the models whose traffic would move, such as the
    mid tier, comma-separated (default: all traffic); `hosted_model` is the model to compare with."""

    gpu: str | None = Field(default=None, max_length=120)
    model: str | None = Field(default=None, max_length=120)
    gpus_per_replica: int = Field(default=1, ge=1, le=64)
    replicas: int = Field(default=1, ge=1, le=100)
    moved: str | None = Field(default=None, max_length=2000)
    hosted_model: str | None = Field(default=None, max_length=120)
    quality: float | None = Field(default=None, ge=0, le=1)
    fixed_usd_per_month: float = Field(default=0.0, ge=0, le=10_000_000)
    time_per_output_token_seconds: float = Field(default=0.06, gt=0, le=10)

    def moved_models(self) -> frozenset[str] | None:
        if self.moved is None:
            return None
        return frozenset(name.strip() for name in self.moved.split(",") if name.strip())


class WhatIfRow(BaseModel):
    """One GPU and model, per month. A `*_basis` says how far to trust a figure: measured, published or assumed."""

    gpu: str
    model: str
    gpus_per_replica: int
    replicas: int
    gpu_hour_usd: str
    price_basis: str
    price_source: str
    speed_basis: str
    speed_source: str
    concurrency: int
    hosted_usd: str
    month_usd: str
    saving_usd: str
    saving_low_usd: str | None
    saving_high_usd: str | None
    probability_cheaper: float | None
    break_even_utilisation: float | None
    expected_utilisation: float
    break_even_requests_per_day: float | None
    verdict: str


class Refused(BaseModel):
    """An impossible combination: the model does not fit on the GPU, or is too slow there."""

    gpu: str
    model: str
    reason: str


class WhatIfView(BaseModel):
    """Largest saving first. `hours_per_month` is the length of a month that the figures assume."""

    hosted: str
    requests_per_day: float
    hours_per_month: float
    answers: list[WhatIfRow]
    refused: list[Refused]
    gpus: list[str]
    models: list[str]


class WhatIfs(Protocol):
    async def what_if(self, query: WhatIfQuery) -> WhatIfView:
        """Raises InvalidRequest, with a sentence."""
        ...
