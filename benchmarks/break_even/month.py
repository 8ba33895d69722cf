"""A synthetic April 2026: office hours and weekends, days that differ, slow growth, an outage and a nightly batch."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from gateway.economics.gpu_cost import Engine
from gateway.economics.throughput_curve import SweepPoint, fit_throughput_curve
from gateway.economics.traffic import GpuPlan, HostedAlternative, HourlyTraffic
from gateway.instants import HOUR_US

START = datetime(2026, 4, 1, tzinfo=UTC)
DAYS = 30
USD = 10**12
SEED = 20260401
REQUESTS_PER_SECOND_AT_THE_TOP = 6.0
WEEKEND = 0.42
OUTAGE_HOURS = (13 * 24 + 9, 13 * 24 + 10)
BATCH_HOURS = (21 * 24 + 2, 21 * 24 + 3)

HOSTED = HostedAlternative(
    name="a mid-size model",
    input_pico_usd_per_token=400_000,
    cached_input_pico_usd_per_token=100_000,
    output_pico_usd_per_token=1_600_000,
    quality=0.74,
)
PLAN = GpuPlan(
    name="a rented 80 GB GPU",
    gpu_hour_price_pico_usd=2_500_000_000_000,
    fixed_month_pico_usd=600 * USD,
    start_up_pico_usd=400_000_000_000,
    variable_pico_usd_per_gpu_second=30_000_000,
    quality=0.72,
)


@dataclass(frozen=True, slots=True)
class Purchase:
    """Buying the same replica instead of renting it."""

    purchase_usd: float = 34_000.0
    running_usd_per_month: float = 310.0
    fixed_usd_per_month: float = 600.0


def build_engine() -> Engine:
    """The curve of docs/economics.md: assumed, not measured on this GPU."""
    points = [SweepPoint(n, n / (0.020 + 0.0005 * n)) for n in (1, 4, 16, 32, 64)]
    return Engine(fit_throughput_curve(points), concurrency=64, prefill_tokens_per_second=8000.0, is_measured=False)


def build_month() -> list[HourlyTraffic]:
    """One row an hour, all of it answered by the hosted model so far."""
    generator = np.random.default_rng(SEED)
    days = np.exp(generator.normal(0.0, 0.15, DAYS))
    start_us = int(START.timestamp()) * 1_000_000
    rows: list[HourlyTraffic] = []
    for hour in range(DAYS * 24):
        day, of_day = divmod(hour, 24)
        rate = REQUESTS_PER_SECOND_AT_THE_TOP * _shape(of_day) * float(days[day]) * (1 + 0.004 * day)
        if (START.weekday() + day) % 7 >= 5:
            rate *= WEEKEND
        if hour in OUTAGE_HOURS:
            continue
        if hour in BATCH_HOURS:
            rate += 12.0
        requests = int(generator.poisson(3600 * rate))
        fresh, cached, output = (float(mean) * np.exp(generator.normal(0, 0.05)) for mean in (585, 315, 280))
        row = HourlyTraffic(
            hour_start_us=start_us + hour * HOUR_US,
            model="mid",
            requests=requests,
            input_tokens=round(requests * (fresh + cached)),
            cached_input_tokens=round(requests * cached),
            output_tokens=round(requests * output),
            gpu_seconds=0.0,
            cost_pico_usd=0,
            list_cost_pico_usd=0,
            estimated_requests=requests // 50,
            aborted_requests=requests // 100,
        )
        rows.append(replace(row, cost_pico_usd=HOSTED.price(row), list_cost_pico_usd=HOSTED.price(row)))
    return rows


def _shape(hour: int) -> float:
    """Two humps around ten and fifteen o'clock over a quiet night, at most 1."""
    humps = np.exp(-(((hour - 10.0) / 2.2) ** 2)) + 0.9 * np.exp(-(((hour - 15.5) / 2.8) ** 2))
    return float(min(1.0, 0.10 + 0.9 * humps))
