"""Valid traffic, plans and prices; a test states only what it is about."""

from collections.abc import Callable, Sequence

import numpy as np

from gateway.economics.break_even import demand_of, report_of
from gateway.economics.gpu_cost import Engine
from gateway.economics.report import BreakEvenReport
from gateway.economics.traffic import GpuPlan, HostedAlternative, HourlyTraffic, Period
from gateway.instants import HOUR_US
from tests.unit.gateway.economics.worked_example import ENGINE

USD = 10**12
MARCH_2026_US = 1_772_323_200_000_000
"""2026-03-01T00:00Z, a Sunday."""

MINI = HostedAlternative("mini", 150_000, 150_000, 600_000, quality=0.71)
LARGE = HostedAlternative("large", 2_500_000, 2_500_000, 10_000_000, quality=0.84)


def make_plan(
    usd_per_hour: float = 2.0,
    *,
    replicas: int = 1,
    fixed_usd: int = 0,
    minimum: int = 0,
    is_running: bool = False,
    variable_pico_usd: int = 0,
) -> GpuPlan:
    return GpuPlan(
        "one GPU",
        round(usd_per_hour * USD),
        replicas=replicas,
        min_replicas=minimum,
        fixed_month_pico_usd=fixed_usd * USD,
        is_running=is_running,
        variable_pico_usd_per_gpu_second=variable_pico_usd,
        quality=0.70,
    )


def make_hour(
    hour: int,
    requests: int,
    *,
    gpu_seconds: float = 0.0,
    aborted: int = 0,
    start_us: int = MARCH_2026_US,
) -> HourlyTraffic:
    """Every request has 500 input tokens, 200 of them cached, and 300 output tokens, charged at MINI's price."""
    return HourlyTraffic(
        hour_start_us=start_us + hour * HOUR_US,
        model="mid",
        requests=requests,
        input_tokens=500 * requests,
        cached_input_tokens=200 * requests,
        output_tokens=300 * requests,
        gpu_seconds=gpu_seconds,
        cost_pico_usd=255_000_000 * requests,
        list_cost_pico_usd=255_000_000 * requests,
        aborted_requests=aborted,
    )


def make_days(days: int, rate: Callable[[int, int], float] | None = None) -> list[HourlyTraffic]:
    """The worked example's day, or `rate(day, hour of day)` in requests a second."""

    def example(day: int, hour: int) -> float:
        return (12.0, 6.0, 2.0)[hour // 8]

    chosen = rate or example
    return [make_hour(day * 24 + hour, round(3600 * chosen(day, hour))) for day in range(days) for hour in range(24)]


def make_noisy_days(days: int, seed: int = 5) -> list[HourlyTraffic]:
    """The worked example with days that differ by a factor of e^N(0, 0.3)."""
    factors = np.exp(np.random.default_rng(seed).normal(0.0, 0.3, days))
    return make_days(days, lambda day, hour: (12.0, 6.0, 2.0)[hour // 8] * float(factors[day]))


def covering_period(rows: Sequence[HourlyTraffic]) -> Period:
    """From the first hour with traffic to the last."""
    starts = [row.hour_start_us for row in rows]
    return Period(min(starts), max(starts) + HOUR_US)


def analyse(
    rows: Sequence[HourlyTraffic],
    plan: GpuPlan | None = None,
    hosted: HostedAlternative = MINI,
    *,
    engine: Engine | None = ENGINE,
    period: Period | None = None,
    volume: float = 1.0,
) -> BreakEvenReport:
    plan, period = plan or make_plan(), period or covering_period(rows)
    demand = demand_of(rows, plan, hosted, engine=engine, period=period, volume=volume)
    return report_of(demand, plan, hosted, period, engine=engine, generator=np.random.default_rng(1))
