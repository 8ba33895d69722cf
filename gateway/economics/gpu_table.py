"""The table of GPUs and models that a what-if chooses from: dated prices, data-sheet figures, sweeps with their source.

Parses text only; the caller reads the file (gpu_table.yaml beside this one, or a deployment's own).
"""

from datetime import date
from decimal import Decimal
from typing import Annotated, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator

from gateway.economics.errors import EconomicsError
from gateway.economics.throughput_curve import SweepPoint, ThroughputCurve, fit_throughput_curve
from gateway.money import parse_usd
from gateway.strict import Strict

Basis = Literal["measured", "published", "assumed"]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]


class GpuPrice(Strict):
    """Prices are decimal text, so that they never pass through a float."""

    usd_per_hour: str
    from_: date = Field(alias="from")
    basis: Basis
    source: str = Field(min_length=1)

    @property
    def pico_usd_per_hour(self) -> int:
        return parse_usd(Decimal(self.usd_per_hour))


class Gpu(Strict):
    name: str
    memory_gb: Positive
    memory_gb_per_second: Positive
    dense_bf16_tflops: Positive
    specification: str
    prices: tuple[GpuPrice, ...]

    def prices_on(self, day: date) -> list[GpuPrice]:
        """The newest price of each source in force on `day`, cheapest first."""
        newest: dict[str, GpuPrice] = {}
        for price in sorted(self.prices, key=lambda price: price.from_):
            if price.from_ <= day:
                newest[price.source] = price
        return sorted(newest.values(), key=lambda price: (price.pico_usd_per_hour, price.source))

    def typical_price(self, day: date) -> GpuPrice:
        """The median price (the lower of two middle ones), not the best offer. Raises EconomicsError without any."""
        prices = self.prices_on(day)
        if not prices:
            raise EconomicsError(f"the table has no price of {self.name} on {day}: add a dated row")
        return prices[(len(prices) - 1) // 2]


class ServedModel(Strict):
    """What determines memory and speed. `kv_bytes` is per element of the key-value cache; for a mixture of experts,
    `active_parameters_billion` are those used for one token."""

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
        """One multiplication and one addition per active weight."""
        return 2 * (self.active_parameters_billion or self.parameters_billion) * 1e9

    def weight_bytes_read(self, sequences: int) -> float:
        """Weight bytes that a step reads: all of them or, for experts, those that any sequence uses, assuming each
        chooses at random."""
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


class Point(Strict):
    concurrency: int = Field(gt=0)
    decode_tokens_per_second: Positive
    time_to_first_token_p95_seconds: Positive | None = None
    """From the sweep, for readers of the table; nothing is computed from it."""


class Curve(Strict):
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


class Assumptions(Strict):
    """Achievable shares of the data sheet's figures."""

    memory_bandwidth: Share
    compute: Share
    memory: Share


Named = TypeVar("Named", Gpu, ServedModel)


class GpuTable(Strict):
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
        """The sweep of exactly this replica: measured before published before assumed, then the newest."""
        rank = {"measured": 2, "published": 1, "assumed": 0}
        fitting = [
            curve
            for curve in self.curves
            if (curve.gpu, curve.gpus_per_replica, curve.model) == (gpu, gpus_per_replica, model)
        ]
        return max(fitting, key=lambda curve: (rank[curve.basis], curve.from_), default=None)


def parse_gpu_table(text: str) -> GpuTable:
    """Raises EconomicsError naming the faulty field."""
    try:
        return GpuTable.model_validate(yaml.safe_load(text))
    except (ValidationError, yaml.YAMLError) as error:
        raise EconomicsError(f"the GPU table cannot be used: {error}") from error


def _find(rows: tuple[Named, ...], name: str) -> Named:
    for row in rows:
        if row.name == name:
            return row
    raise EconomicsError(f"{name!r} is not in the table; it has {', '.join(row.name for row in rows)}")
