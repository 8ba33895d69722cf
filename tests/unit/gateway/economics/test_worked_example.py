"""Every row of the worked example in docs/economics.md, at the precision it is printed with."""

import math

import pytest

from benchmarks.break_even.disciplines import fluid_saving_usd, overflow_saving_usd, queue_saving_usd
from benchmarks.overflow.waiting_line import largest_arrival_rate
from gateway.economics.crossings import self_hosted_intervals
from gateway.economics.gpu_cost import break_even_utilisation, value_usd_per_hour
from gateway.economics.overflow import blocked_share
from gateway.economics.payback import payback
from gateway.economics.staircase import best_replicas, replicas_for_peak, scale_hourly
from tests.unit.gateway.economics.builders import analyse, make_days
from tests.unit.gateway.economics.worked_example import (
    CURVE,
    DAYS,
    ENGINE,
    GPU_SECONDS,
    HOSTED_USD,
    LARGE_USD,
    REQUESTS_PER_DAY,
    SHAPE,
    USD_PER_HOUR,
    build_load,
    make_load,
)

# The longest wait that leaves room for a cold prefill within one second to the first token.
WAIT_SECONDS = 1.0 - SHAPE.input_tokens / ENGINE.prefill_tokens_per_second


def test_throughput() -> None:
    assert CURVE.step_seconds(64) == pytest.approx(0.052)
    assert round(CURVE.tokens_per_second(64), 2) == 1230.77
    assert CURVE.ceiling_tokens_per_second == pytest.approx(2000)


def test_one_request() -> None:
    assert pytest.approx(0.28125) == GPU_SECONDS
    assert round(1 / GPU_SECONDS, 6) == 3.555556
    assert ENGINE.residence_seconds(SHAPE) == pytest.approx(18.0)


@pytest.mark.parametrize(
    ("used", "expected"), [(1.0, 0.00015625), (0.5, 0.0003125), (0.25, 0.000625), (0.1, 0.0015625)]
)
def test_cost_of_a_request_at(used: float, expected: float) -> None:
    owned = analyse(make_days(1, lambda _day, _hour: used / GPU_SECONDS)).owned
    assert owned.utilisation == pytest.approx(used, abs=1e-4)  # whole requests in an hour
    assert float(owned.allocated_usd_per_request or 0) == pytest.approx(expected, rel=1e-4)


def test_cost_of_output() -> None:
    usd_per_million_tokens = 1e6 * USD_PER_HOUR / 3600 / CURVE.tokens_per_second(64)
    assert usd_per_million_tokens == pytest.approx(1e6 * 2 / 3600 / 1230.769231)


@pytest.mark.parametrize(
    ("hosted", "request_usd", "value", "share"),
    [(HOSTED_USD, 0.000255, 3.264, 0.6127), (LARGE_USD, 0.00425, 54.40, 0.03676)],
)
def test_break_even_utilisation(hosted: float, request_usd: float, value: float, share: float) -> None:
    assert hosted == pytest.approx(request_usd)
    assert value_usd_per_hour(hosted, GPU_SECONDS) == pytest.approx(value)
    assert break_even_utilisation(USD_PER_HOUR, value_usd_per_hour(hosted, GPU_SECONDS)) == pytest.approx(
        share, abs=5e-5 if share > 0.1 else 5e-6
    )


def test_the_load() -> None:
    load = make_load()
    requests = load.hours * 3600 * load.requests_per_second
    assert float(requests.sum()) / DAYS == pytest.approx(REQUESTS_PER_DAY)
    assert load.peak_to_mean == pytest.approx(1.8)
    assert round(100 / 1.8, 1) == 55.6
    assert self_hosted_intervals(load, USD_PER_HOUR) == []


def test_all_hosted() -> None:
    assert make_load().value_usd == pytest.approx(4406.40, abs=0.005)
    assert make_load(LARGE_USD).value_usd == pytest.approx(73_440, abs=0.5)


def test_staircase() -> None:
    load = make_load()
    values = [load.layer_value_usd(layer) for layer in range(1, replicas_for_peak(load) + 1)]
    assert [round(value / DAYS, 3) for value in values] == [66.912, 44.064, 26.112, 9.792]
    assert best_replicas(load, USD_PER_HOUR) == 1
    savings = [fluid_saving_usd(load, USD_PER_HOUR, count) for count in (1, 2, 3, 4)]
    assert [round(load.value_usd - saving, 2) for saving in savings] == [3839.04, 3957.12, 4613.76, 5760.00]


def test_hourly_scaling() -> None:
    scaled = scale_hourly(make_load(), USD_PER_HOUR)
    assert round(scaled.total_usd, 2) == 3134.40
    assert scaled.replicas[:24] == (3,) * 8 + (2,) * 8 + (0,) * 8


@pytest.mark.parametrize(
    ("fixed", "exact", "on_grid", "spend"), [(0, 11_294.1, 12_096, 1542), (7500, 70_117.6, 70_848, 9033)]
)
def test_peak_sized_fleet_is_first_cheaper_at(fixed: float, exact: float, on_grid: int, spend: int) -> None:
    """The example counts volumes in steps of 0.01 requests a second on average; the exact crossing lies just before."""
    intervals = self_hosted_intervals(make_load(LARGE_USD), USD_PER_HOUR, fixed_usd=fixed)
    assert round(intervals[0].start * REQUESTS_PER_DAY, 1) == exact
    step = 0.01 * 86_400 / REQUESTS_PER_DAY
    first = math.ceil(intervals[0].start / step) * step
    assert round(first * REQUESTS_PER_DAY) == on_grid
    assert round(first * REQUESTS_PER_DAY * DAYS * LARGE_USD) == spend


@pytest.mark.parametrize(("replicas", "rate"), [(1, 2.9295), (2, 6.2706), (4, 13.1262)])
def test_largest_rate_with_a_second_to_first_token(replicas: int, rate: float) -> None:
    assert round(largest_arrival_rate(64 * replicas, 18.0, WAIT_SECONDS), 4) == rate


def test_what_one_replica_saves() -> None:
    load = make_load()
    fluid = fluid_saving_usd(load, USD_PER_HOUR, 1)
    queued = queue_saving_usd(load, USD_PER_HOUR, 1, slots_per_replica=64, wait_seconds=WAIT_SECONDS)
    overflow = overflow_saving_usd(load, USD_PER_HOUR, 1, slots_per_replica=64)
    assert round(fluid, 2) == 567.36
    assert (round(queued, 2), round(100 * queued / fluid)) == (291.47, 51)
    # The example multiplies the admitted rate as printed, with four places, which accounts for its last two cents.
    as_printed = 8 * 3600 * (2.9295 + 2.9295 + 2.0) * HOSTED_USD * DAYS - USD_PER_HOUR * 24 * DAYS
    assert round(as_printed, 2) == 291.49
    assert (round(overflow, 2), round(100 * overflow / fluid)) == (546.13, 96)


def test_blocking() -> None:
    blocked = blocked_share(build_load(8.0, [12.0, 6.0, 2.0], GPU_SECONDS, HOSTED_USD), 1, 64)
    assert [round(share, 6) for share in blocked.tolist()] == [0.705618, 0.419638, 0.000007]


@pytest.mark.parametrize(("factor", "month"), [(1.0, 9), (0.5, 17), (0.1, None)])
def test_payback(factor: float, month: int | None) -> None:
    result = payback(
        purchase_usd=25_000, month_cost_usd=400 + 1000, replaced_month_usd=4406.40, yearly_price_factor=factor
    )
    assert result.month == month
    if month is None:
        assert round(result.best_recovered_usd) == 8857
