import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.break_even.disciplines import fluid_saving_usd, overflow_saving_usd, queue_saving_usd
from gateway.economics.crossings import (
    hybrid_from_scale,
    self_hosted_intervals,
)
from gateway.economics.load_duration import Load
from gateway.economics.staircase import best_replicas, replicas_for_peak, scale_hourly
from tests.unit.gateway.economics.worked_example import (
    build_load,
)


def is_peak_fleet_cheaper(load: Load, usd_per_replica_hour: float, *, fixed_usd: float = 0.0) -> bool:
    """At the load's own volume, computed from the bill only."""
    rent = replicas_for_peak(load) * usd_per_replica_hour * load.total_hours
    return rent + fixed_usd < load.value_usd


def rounded(largest: float, *, least: float = 0.0, places: int = 3) -> st.SearchStrategy[float]:
    """Realistic numbers: rates of 1e-300 requests a second would only test floating-point arithmetic."""
    return st.floats(least, largest).map(lambda value: round(value, places))


loads = st.lists(st.tuples(rounded(20), rounded(1, least=0.05), rounded(0.002, places=6)), min_size=1, max_size=12).map(
    lambda rows: build_load(1.0, *(list(column) for column in zip(*rows, strict=True)))
)


@given(load=loads)
def test_each_further_replica_is_worth_no_more(load: Load) -> None:
    values = [load.layer_value_usd(layer) for layer in range(1, 8)]
    assert all(later <= earlier + 1e-9 for earlier, later in itertools.pairwise(values))


@given(load=loads)
def test_the_layers_up_to_the_peak_are_the_whole_bill(load: Load) -> None:
    values = sum(load.layer_value_usd(layer) for layer in range(1, replicas_for_peak(load) + 1))
    assert values == pytest.approx(load.value_usd, abs=1e-9)


@given(load=loads, rent=st.floats(0.1, 5))
def test_no_other_fleet_is_cheaper_than_the_best(load: Load, rent: float) -> None:
    best = fluid_saving_usd(load, rent, best_replicas(load, rent))
    others = [fluid_saving_usd(load, rent, count) for count in range(replicas_for_peak(load) + 2)]
    assert best == pytest.approx(max(others), abs=1e-9)


@settings(max_examples=30)
@given(
    rates=st.lists(st.floats(0, 3), min_size=1, max_size=6),
    rent=st.floats(0.1, 3),
    start_up=st.floats(0, 3),
    minimum=st.integers(0, 1),
)
def test_no_schedule_is_cheaper_than_hourly_scaling(
    rates: list[float], rent: float, start_up: float, minimum: int
) -> None:
    load = build_load(1.0, rates, 1.0, 0.0004)
    scaled = scale_hourly(load, rent, start_up_usd=start_up, minimum=minimum)
    highest = max(replicas_for_peak(load), minimum)
    costs = [
        schedule_usd(load, schedule, rent, start_up)
        for schedule in itertools.product(range(minimum, highest + 1), repeat=len(rates))
    ]
    assert scaled.total_usd == pytest.approx(min(costs), abs=1e-9)
    assert schedule_usd(load, scaled.replicas, rent, start_up) == pytest.approx(scaled.total_usd, abs=1e-9)


def schedule_usd(load: Load, schedule: tuple[int, ...], rent: float, start_up: float) -> float:
    served = np.minimum(load.requests_per_second, np.array(schedule) / load.gpu_seconds_per_request)
    hosted = (load.requests_per_second - served) * 3600 * load.value_usd_per_request
    starts = sum(max(0, now - before) for before, now in itertools.pairwise((0, *schedule)))
    return float(hosted.sum()) + rent * sum(schedule) + start_up * starts


def test_starting_is_spared_through_a_short_lull_only() -> None:
    load = build_load(1.0, [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0], 1.0, 0.001)
    assert scale_hourly(load, 1.0, start_up_usd=1.5).replicas == (1, 1, 1, 0, 0, 0, 1, 1)
    assert scale_hourly(load, 1.0, start_up_usd=3.5).replicas == (1,) * 8
    assert scale_hourly(load, 1.0, start_up_usd=0.0).replicas == (1, 0, 1, 0, 0, 0, 1, 1)


def test_minimum_replicas_are_paid_through_the_night() -> None:
    load = build_load(1.0, [0.0, 0.0], 0.3, 0.001)
    assert best_replicas(load, 2.0) == 0
    assert scale_hourly(load, 2.0, minimum=1).total_usd == 4.0


def test_a_load_without_traffic() -> None:
    load = build_load(1.0, [0.0] * 24, 0.3, 0.001)
    assert load.peak_to_mean is None
    assert self_hosted_intervals(load, 2.0) == []
    assert hybrid_from_scale(load, 2.0, 1) == math.inf


def test_a_staircase_can_cross_more_than_once() -> None:
    """Just above a full fleet one more replica must be rented for a trickle: hosting is cheaper again for a while."""
    load = build_load(1.0, [1.0, 0.8], 1.0, 0.001)
    intervals = self_hosted_intervals(load, 2.4)
    assert len(intervals) >= 3
    assert intervals[-1].end == math.inf
    for interval in intervals[:-1]:
        assert is_peak_fleet_cheaper(load.scaled(interval.end), 2.4)
        assert not is_peak_fleet_cheaper(load.scaled(interval.end * 1.0001), 2.4)


@settings(max_examples=30)
@given(load=loads, rent=st.floats(0.1, 3), fixed=st.floats(0, 30), scale=st.floats(0.01, 40))
def test_the_intervals_are_where_the_bill_is_smaller(load: Load, rent: float, fixed: float, scale: float) -> None:
    intervals = self_hosted_intervals(load, rent, fixed_usd=fixed)
    edges = [edge for interval in intervals for edge in (interval.start, interval.end)]
    if any(math.isclose(scale, edge, rel_tol=1e-6) for edge in edges):
        return  # exactly at the edge the two sums may round differently
    is_inside = any(interval.start < scale <= interval.end for interval in intervals)
    assert is_inside == is_peak_fleet_cheaper(load.scaled(scale), rent, fixed_usd=fixed)


@settings(max_examples=30)
@given(load=loads, rent=st.floats(0.1, 3), fixed=st.floats(0, 30), replicas=st.integers(1, 3))
def test_a_hybrid_fleet_is_cheaper_exactly_from_its_break_even_on(
    load: Load, rent: float, fixed: float, replicas: int
) -> None:
    scale = hybrid_from_scale(load, rent, replicas, fixed_usd=fixed)
    if scale == math.inf:
        scaled = load.scaled(1e9)
        assert fluid_saving_usd(scaled, rent, replicas) - fixed <= scaled.value_usd * 1e-9
        return
    for factor, is_cheaper in ((0.99, False), (1.01, True)):
        scaled = load.scaled(scale * factor)
        saving = fluid_saving_usd(scaled, rent, replicas) - fixed
        tolerance = 1e-9 * (1 + scaled.value_usd)
        assert saving >= -tolerance if is_cheaper else saving <= tolerance


@settings(max_examples=20)
@given(load=loads, replicas=st.integers(1, 3))
def test_neither_overflow_nor_a_queue_beats_water(load: Load, replicas: int) -> None:
    fluid = fluid_saving_usd(load, 2.0, replicas)
    assert overflow_saving_usd(load, 2.0, replicas, slots_per_replica=16) <= fluid + 1e-9
    assert queue_saving_usd(load, 2.0, replicas, slots_per_replica=16, wait_seconds=1.0) <= fluid + 1e-9


def test_a_search_that_stops_early_leaves_its_last_interval_finite() -> None:
    load = build_load(1.0, [1.0, 0.8], 1.0, 0.001)
    intervals = self_hosted_intervals(load, 3.23, largest_fleet=20)
    assert intervals
    assert intervals[-1].end == pytest.approx(20.0)
