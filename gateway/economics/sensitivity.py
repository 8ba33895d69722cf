"""Tornado analysis: which input, changed by a quarter either way, moves the plan's saving most."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gateway.economics.demand import PICO, Demand
from gateway.economics.gpu_cost import Engine
from gateway.economics.load_duration import Load
from gateway.economics.overflow import served_value_usd_by_bin
from gateway.economics.traffic import GpuPlan

CHANGE = 0.25
FIXED_COST = "fixed cost per month"


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that a month's bill depends on. `slots_per_replica` None: the fluid bound.

    `hosted_usd` is the period's bill with everything hosted; `load` is the part of it that a GPU can save.
    """

    load: Load
    hosted_usd: float
    replicas: int
    usd_per_replica_hour: float
    fixed_usd_per_month: float
    hours_per_month: float
    slots_per_replica: int | None

    @property
    def month_factor(self) -> float:
        return self.hours_per_month / self.load.total_hours

    @property
    def hosted_usd_per_month(self) -> float:
        return self.hosted_usd * self.month_factor

    @property
    def saving_usd_per_month(self) -> float:
        """Compared with hosting everything."""
        served = served_value_usd_by_bin(self.load, self.replicas, self.slots_per_replica)
        return self.saving_usd(float(served.sum()))

    def saving_usd(self, served_usd: float) -> float:
        """The monthly saving if load worth `served_usd` is served over the period."""
        rent = self.replicas * self.usd_per_replica_hour * self.hours_per_month
        return served_usd * self.month_factor - rent - self.fixed_usd_per_month


def build_case(demand: Demand, plan: GpuPlan, engine: Engine | None) -> Case:
    return Case(
        load=demand.load,
        hosted_usd=demand.hosted_pico_usd / PICO,
        replicas=plan.replicas,
        usd_per_replica_hour=plan.replica_hour_pico_usd / PICO,
        fixed_usd_per_month=plan.fixed_month_pico_usd / PICO,
        hours_per_month=plan.hours_per_month,
        slots_per_replica=engine.concurrency if engine else None,
    )


def swing(case: Case, demand: Demand) -> list[tuple[str, float, float]]:
    """Each input with the saving at minus and plus CHANGE, widest swing first."""
    rows = [
        (name, vary(case, 1 - CHANGE).saving_usd_per_month, vary(case, 1 + CHANGE).saving_usd_per_month)
        for name, vary in _inputs(demand).items()
        if case.fixed_usd_per_month or name != FIXED_COST
    ]
    return sorted(rows, key=lambda row: -abs(row[2] - row[1]))


def _inputs(demand: Demand) -> Mapping[str, Callable[[Case, float], Case]]:
    busy_seconds = float((demand.load.hours * demand.load.busy_replicas).sum()) * 3600
    variable = demand.variable_usd / busy_seconds if busy_seconds else 0.0

    def scaled(case: Case, *, credit: float = 1.0, seconds: float = 1.0) -> Case:
        return replace(case, load=_scale(case.load, variable, credit=credit, seconds=seconds))

    inputs: dict[str, Callable[[Case, float], Case]] = {
        "price of a GPU-hour": lambda case, by: replace(case, usd_per_replica_hour=case.usd_per_replica_hour * by),
        "hosted price": lambda case, by: scaled(case, credit=by),
        "GPU-seconds per request": lambda case, by: scaled(case, seconds=by),
        "requests per day": lambda case, by: replace(case, load=case.load.scaled(by)),
        FIXED_COST: lambda case, by: replace(case, fixed_usd_per_month=case.fixed_usd_per_month * by),
    }
    prefill = demand.prefill_share
    if prefill is not None:  # without a curve the decode share of a GPU-second is unknown
        output = demand.output_value_share
        inputs["output tokens per request"] = lambda case, by: scaled(
            case, credit=1 + output * (by - 1), seconds=1 + (1 - prefill) * (by - 1)
        )
    return inputs


def _scale(load: Load, variable_usd_per_gpu_second: float, *, credit: float, seconds: float) -> Load:
    """`credit` scales the hosted price only: the cost of a busy second beyond the rent scales with `seconds`."""
    was = load.gpu_seconds_per_request
    hosted = load.value_usd_per_request + variable_usd_per_gpu_second * was
    return replace(
        load,
        gpu_seconds_per_request=was * seconds,
        value_usd_per_request=hosted * credit - variable_usd_per_gpu_second * was * seconds,
    )
