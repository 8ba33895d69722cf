"""The table of GPUs and models that a what-if chooses from: dated prices, data-sheet figures, sweeps with their source.

It parses text; reading the file (gpu_table.yaml beside this one, or a deployment's own) is the caller's affair.
"""

from datetime import date
from decimal import Decimal
from typing import Annotated, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gateway.economics.errors import EconomicsError
from gateway.economics.throughput_curve import SweepPoint, ThroughputCurve, fit_throughput_curve
from gateway.money import parse_usd

Basis = Literal["measured", "published", "assumed"]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]


class Row(BaseModel):
    """Nothing unknown is let through: a misspelt key would silently be an assumption."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class GpuPrice(Row):
    """Decimal text, so that no price ever was a float."""

    usd_per_hour: str
    from_: date = Field(alias="from")
    basis: Basis
    source: str = Field(min_length=1)

    @property
    def pico_usd_per_hour(self) -> int:
        return parse_usd(Decimal(self.usd_per_hour))


class Gpu(Row):
    name: str
    memory_gb: Positive
    memory_gb_per_second: Positive
    dense_bf16_tflops: Positive
    specification: str
    prices: tuple[GpuPrice, ...]

    def prices_on(self, day: date) -> list[GpuPrice]:
        """The newest price of each source that was in force, cheapest first."""
        newest: dict[str, GpuPrice] = {}
        for price in sorted(self.prices, key=lambda price: price.from_):
            if price.from_ <= day:
                newest[price.source] = price
        return sorted(newest.values(), key=lambda price: (price.pico_usd_per_hour, price.source))

    def typical_price(self, day: date) -> GpuPrice:
        """The middle one, the lower of two: neither the best offer nor the worst. Raises EconomicsError without any."""
        prices = self.prices_on(day)
        if not prices:
            raise EconomicsError(f"the table has no price of {self.name} on {day}: add a dated row")
        return prices[(len(prices) - 1) // 2]


class ServedModel(Row):
    """What decides memory and speed. `kv_bytes` is per element of the key-value cache; of a model with experts
    `active_parameters_billion` are those that one token takes part of."""

    name: str
    parameters_billion: Positive
    active_parameters_billion: Positive | None = None
    bytes_per_parameter: Positive
    layers: int = Field(gt=0)
    kv_heads: int = Field(gt=0)
    head_dimension: int = Field(gt=0)
    kv_bytes: Positive = 2

    @property
    def weight_bytes(self) -> float:
        return self.parameters_billion * 1e9 * self.bytes_per_parameter

    @property
    def operations_per_token(self) -> float:
        """A multiplication and an addition with each weight that a token meets."""
        return 2 * (self.active_parameters_billion or self.parameters_billion) * 1e9

    def weight_bytes_read(self, sequences: int) -> float:
        """What a step reads: all, or of experts those that any sequence takes, each taking its own by chance."""
        active = (self.active_parameters_billion or self.parameters_billion) / self.parameters_billion
        return self.weight_bytes * (1 - (1 - active) ** sequences)

    @model_validator(mode="after")
    def _active_are_some(self) -> "ServedModel":
        if (self.active_parameters_billion or 0) > self.parameters_billion:
            raise ValueError(f"{self.name}: active_parameters_billion are some of parameters_billion, not more")
        return self

    @property
    def kv_bytes_per_token(self) -> float:
        return 2 * self.layers * self.kv_heads * self.head_dimension * self.kv_bytes


class Point(Row):
    concurrency: int = Field(gt=0)
    decode_tokens_per_second: Positive
    time_to_first_token_p95_seconds: Positive | None = None
    """Of the sweep, for whoever reads the table; nothing is computed from it."""


class Curve(Row):
    """A sweep of one model on one kind of replica."""

    gpu: str
    gpus_per_replica: int = Field(default=1, gt=0)
    model: str
    basis: Basis
    from_: date = Field(alias="from")
    source: str = Field(min_length=1)
    prefill_tokens_per_second: Positive
    points: tuple[Point, ...]

    def fit(self) -> ThroughputCurve:
        return fit_throughput_curve(
            [SweepPoint(point.concurrency, point.decode_tokens_per_second) for point in self.points]
        )


class Assumptions(Row):
    """Shares of the data sheet's peak."""

    memory_bandwidth: Share
    compute: Share
    memory: Share


Named = TypeVar("Named", Gpu, ServedModel)


class GpuTable(Row):
    version: Literal[1]
    assumptions: Assumptions
    gpus: tuple[Gpu, ...]
    models: tuple[ServedModel, ...]
    curves: tuple[Curve, ...] = ()

    @model_validator(mode="after")
    def _names_exist(self) -> "GpuTable":
        gpus, models = {gpu.name for gpu in self.gpus}, {model.name for model in self.models}
        for curve in self.curves:
            if curve.gpu not in gpus or curve.model not in models:
                raise ValueError(f"curve of {curve.model} on {curve.gpu}: no such row in gpus or models")
        return self

    def gpu(self, name: str) -> Gpu:
        return _find(self.gpus, name)

    def model(self, name: str) -> ServedModel:
        return _find(self.models, name)

    def curve(self, gpu: str, gpus_per_replica: int, model: str) -> Curve | None:
        """The newest sweep of exactly this replica, a measured one before a published one."""
        rank = {"measured": 2, "published": 1, "assumed": 0}
        fitting = [
            curve
            for curve in self.curves
            if (curve.gpu, curve.gpus_per_replica, curve.model) == (gpu, gpus_per_replica, model)
        ]
        return max(fitting, key=lambda curve: (rank[curve.basis], curve.from_), default=None)


def parse_gpu_table(text: str) -> GpuTable:
    """Raises EconomicsError that names the field."""
    try:
        return GpuTable.model_validate(yaml.safe_load(text))
    except (ValidationError, yaml.YAMLError) as error:
        raise EconomicsError(f"the GPU table cannot be used: {error}") from error


def _find(rows: tuple[Named, ...], name: str) -> Named:
    for row in rows:
        if row.name == name:
            return row
    raise EconomicsError(f"{name!r} is not in the table; it has {', '.join(row.name for row in rows)}")
