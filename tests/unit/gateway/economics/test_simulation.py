"""The analytic results must lie within those of a brute-force simulation that uses none of their formulas."""

import heapq
import math

import numpy as np
import pytest

from benchmarks.break_even.brute_force import SimulatedBill, simulate_overflow
from benchmarks.break_even.disciplines import fluid_saving_usd, overflow_saving_usd
from benchmarks.overflow.waiting_line import largest_arrival_rate
from gateway.economics.load_duration import FloatArray
from gateway.economics.overflow import blocked_share
from tests.unit.gateway.economics.worked_example import (
    CURVE,
    ENGINE,
    GPU_SECONDS,
    HOSTED_USD,
    SHAPE,
    USD_PER_HOUR,
    build_load,
)

HOURS_EACH = 4
LOAD = build_load(1.0, [12.0] * HOURS_EACH + [6.0] * HOURS_EACH + [2.0] * HOURS_EACH, GPU_SECONDS, HOSTED_USD)
BATCHES = 6


def simulate_waits(
    arrivals_per_second: float, slots: int, residence_seconds: float, *, requests: int, generator: np.random.Generator
) -> FloatArray:
    """Seconds that each of `requests` arrivals waits in one queue for `slots`, with exponential residence."""
    gaps = generator.exponential(1.0 / arrivals_per_second, requests)
    stays = generator.exponential(residence_seconds, requests)
    free_at = [0.0] * slots
    waits = np.zeros(requests)
    for index, (arrival, stay) in enumerate(zip(np.cumsum(gaps).tolist(), stays.tolist(), strict=True)):
        begins = max(arrival, free_at[0])
        heapq.heapreplace(free_at, begins + stay)
        waits[index] = begins - arrival
    return waits


def constant_residence(running: int) -> float:
    return 18.0


def engine_residence(running: int) -> float:
    """A request among `running` waits for every prefill among them and for its own decode steps."""
    return running * ENGINE.prefill_seconds(SHAPE) + SHAPE.output_tokens * CURVE.step_seconds(running)


def simulate_once(seed: int, residence: str = "constant") -> SimulatedBill:
    return simulate_overflow(
        LOAD,
        USD_PER_HOUR,
        64,
        1,
        residence_seconds=constant_residence if residence == "constant" else engine_residence,
        generator=np.random.default_rng(seed),
    )


@pytest.fixture(scope="module")
def bills() -> list[SimulatedBill]:
    return [simulate_once(seed) for seed in range(BATCHES)]


def test_the_saving_of_overflow_is_within_the_simulations_interval(bills: list[SimulatedBill]) -> None:
    """For the arrivals that were drawn, so that only what happened to them is compared."""
    served_share = 1.0 - blocked_share(LOAD, 1, 64)
    rent = USD_PER_HOUR * LOAD.total_hours
    differences = np.array(
        [bill.saving_usd - float((bill.arrivals * served_share).sum() * HOSTED_USD - rent) for bill in bills]
    )
    error = float(differences.std(ddof=1)) / math.sqrt(BATCHES)
    assert abs(float(differences.mean())) < 4 * error
    overflow = overflow_saving_usd(LOAD, USD_PER_HOUR, 1, slots_per_replica=64)
    fluid = fluid_saving_usd(LOAD, USD_PER_HOUR, 1)
    assert 4 * error < (fluid - overflow) / 2, "too coarse to tell the overflow model from the fluid bound"


def test_blocking_is_within_the_simulations_interval(bills: list[SimulatedBill]) -> None:
    expected = blocked_share(LOAD, 1, 64)
    for first in range(0, 3 * HOURS_EACH, HOURS_EACH):
        # The first hour after a change of load still contains requests of the load before it.
        hours = slice(first + 1, first + HOURS_EACH)
        shares = np.concatenate([bill.hosted[hours] / bill.arrivals[hours] for bill in bills])
        error = float(shares.std(ddof=1)) / math.sqrt(len(shares))
        assert float(shares.mean()) == pytest.approx(float(expected[first]), abs=max(4 * error, 1e-4))


def test_an_engine_that_is_faster_when_emptier_blocks_no_more_than_the_model_says() -> None:
    """The model charges every request the step time of a full batch, which errs on the safe side."""
    assert engine_residence(64) == pytest.approx(18.0)
    bill = simulate_once(9, residence="engine")
    share = bill.hosted[HOURS_EACH + 1 : 2 * HOURS_EACH].sum() / bill.arrivals[HOURS_EACH + 1 : 2 * HOURS_EACH].sum()
    assert share < float(blocked_share(LOAD, 1, 64)[HOURS_EACH])
    assert bill.saving_usd > overflow_saving_usd(LOAD, USD_PER_HOUR, 1, slots_per_replica=64)


def test_the_promised_wait_is_kept_at_the_largest_rate_and_not_much_beyond_it() -> None:
    rate = largest_arrival_rate(64, 18.0, 0.9375)
    generator = np.random.default_rng(4)
    for factor, is_kept in ((0.97, True), (1.03, False)):
        waits = simulate_waits(rate * factor, 64, 18.0, requests=300_000, generator=generator)
        assert bool(np.quantile(waits[10_000:], 0.95) <= 0.9375) == is_kept


def test_a_night_without_traffic_costs_its_rent() -> None:
    load = build_load([1.0, 2.0], [0.0, 0.0], 0.3, 0.001)
    bill = simulate_overflow(load, 2.0, 4, 2, residence_seconds=constant_residence, generator=np.random.default_rng(1))
    assert (bill.bill_usd, bill.all_hosted_usd, bill.saving_usd) == (12.0, 0.0, -12.0)
